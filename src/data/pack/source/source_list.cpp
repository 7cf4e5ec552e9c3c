#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/core.h>

#include "data/pack/source/source_files.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view blanks = " \t";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

}  // namespace

void index_list(const fs::path& list, const fs::path& root, Part part, IndexWriter& index) {
  require_folder(root);
  std::ifstream lines(list);
  require(lines.good(), fmt::format("{}: {}", list.string(), std::strerror(errno)));
  index.labels_are_given();
  index.set_list(list);
  std::size_t number = 0, images = 0;
  for (std::string text; std::getline(lines, text);) {
    ++number;
    if (text.ends_with('\r')) text.pop_back();
    const std::string_view line = trimmed(text);
    if (line.empty() || line.starts_with('#')) continue;
    // If the line has a tab, the path and the label may contain spaces.
    const bool tab = line.find('\t') != line.npos;
    const std::size_t at = line.find_last_of(tab ? "\t" : " ");
    require(line.find('\0') == line.npos && at != line.npos,
            fmt::format("{}, line {}: expected a path and a label, found \"{}\"", list.string(),
                        number, line.substr(0, 200)));
    index.add(part, trimmed(line.substr(0, at)), trimmed(line.substr(at)), number);
    ++images;
  }
  require(lines.eof(), fmt::format("{}: cannot be read after line {}", list.string(), number));
  require(images > 0, fmt::format("{}: lists no images", list.string()));
}

}  // namespace lockstep::data
