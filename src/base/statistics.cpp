#include "lockstep/base/statistics.hpp"

#include <algorithm>
#include <cstddef>

namespace lockstep {
namespace {

double in_order(std::vector<double>& values, std::size_t index) {
  if (values.empty()) return 0;
  const auto wanted = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), wanted, values.end());
  return *wanted;
}

}  // namespace

double lower_median(std::vector<double> values) {
  return in_order(values, values.empty() ? 0 : (values.size() - 1) / 2);
}

double upper_median(std::vector<double> values) { return in_order(values, values.size() / 2); }

}  // namespace lockstep
