#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

/// A table whose columns are as wide as their widest cell; all rows have as many cells.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace lockstep::app
