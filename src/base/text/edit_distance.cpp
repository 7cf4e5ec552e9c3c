#include "lockstep/base/text/edit_distance.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace lockstep {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j] ? 1 : 0);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::size_t most_typing_errors(std::size_t letters) {
  return std::min<std::size_t>(3, (letters + 2) / 3);
}

std::string plain_form(std::string_view word) {
  std::string plain(word);
  for (char& c : plain)
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  const std::string plain = plain_form(word);
  std::size_t smallest = most_typing_errors(plain.size()) + 1;
  std::string best;
  for (const std::string& one : known) {
    const std::size_t distance = edit_distance(plain, plain_form(one));
    if (distance >= smallest || distance >= one.size()) continue;
    smallest = distance;
    best = one;
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string best = nearest(word, known);
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

}  // namespace lockstep
