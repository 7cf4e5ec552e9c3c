#pragma once

#include <string>
#include <vector>

namespace lockstep {

std::size_t width_of(const std::string& text);  ///< characters, not bytes, of UTF-8
/// The widest cell of each column.
std::vector<std::size_t> widths_of(const std::vector<std::vector<std::string>>& rows);
/// The cells, as wide as their columns, with `between` between them.
std::string row_text(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths,
                     const char* between);
/// A text table with line ends. All rows must have the same number of cells.
std::string table(std::vector<std::vector<std::string>> rows);

}  // namespace lockstep
