#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// Calls what it is given with each of some rows, in any order.
using EachRow = std::function<void(const std::function<void(std::span<const std::uint8_t>)>&)>;

/// Percentiles of each channel's values that do not stand for no data, exactly: as numpy's, between
/// neighbours on a straight line. [percent][channel]; NaN where a channel has no value. Goes
/// through the rows twice, and keeps counts, not values.
std::vector<std::vector<double>> percentiles(const DataSetInfo& rows,
                                             std::span<const double> percents,
                                             const EachRow& each_row);

}  // namespace lockstep::data
