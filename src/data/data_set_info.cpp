#include "lockstep/data/data_set_info.hpp"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::data {

std::string say_no_data(const DataSetInfo& info) {
  if (!info.no_data) return "none";
  return std::isnan(*info.no_data) ? "nan" : fmt::format("{}", *info.no_data);
}

}  // namespace lockstep::data
