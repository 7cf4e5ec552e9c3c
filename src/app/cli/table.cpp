#include "app/cli/table.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/text/words.hpp"

namespace lockstep::app {

std::string table(const std::vector<std::vector<std::string>>& given) {
  std::vector<std::vector<std::string>> rows = given;
  for (auto& row : rows)
    for (std::string& cell : row) cell = one_line(cell);
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column)
      line += fmt::format("{:<{}}  ", row[column], widths[column]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace lockstep::app
