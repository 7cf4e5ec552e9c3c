#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

/// A text table. Columns are as wide as their widest cell; all rows must have the same number of
/// cells.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace lockstep::app
