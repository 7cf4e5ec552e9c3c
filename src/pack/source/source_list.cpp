#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/text/words.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view blanks = " \t";

/// A path may have any other byte, in any encoding.
bool is_text(std::string_view some) {
  return std::none_of(some.begin(), some.end(), [](unsigned char c) {
    return (c < ' ' && c != '\t' && c != '\r' && c != '\n') || c == '\x7F';
  });
}

/// A PNG's first line, say, looks like text.
bool begins_as_text(const fs::path& list) {
  std::array<char, 512> first{};
  std::ifstream file(list);
  file.read(first.data(), first.size());
  return is_text({first.data(), static_cast<std::size_t>(file.gcount())});
}

/// Passes each line of a list to `take`, which says whether it is an image.
void each_line(const fs::path& list, const std::function<bool(std::string&, std::size_t)>& take) {
  std::ifstream lines(list);
  require(lines.good(), fmt::format("{}: {}", list.string(), std::strerror(errno)));
  std::size_t number = 0, images = 0;
  for (std::string text; std::getline(lines, text);) {
    if (++number == 1 && text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);  // of UTF-8
    if (text.ends_with('\r')) text.pop_back();
    images += take(text, number) ? 1 : 0;
  }
  require(lines.eof(), fmt::format("{}: cannot be read after line {}", list.string(), number));
  require(images > 0, fmt::format("{}: lists no images", list.string()));
}

}  // namespace

void index_list(const fs::path& list, const fs::path& root, Split split, IndexWriter& index) {
  require_folder(root);
  require_regular(list);
  const bool zip = first_line(list).starts_with("PK\x03\x04");
  const std::string not_text =
      zip && has_ending(list, {".npz"})
          ? "holds NumPy arrays: write_shards() of data/lockstep.py makes shards of them"
      : zip ? "is a zip archive: unpack it, or make a tar of it"
            : "is not text; a list has a path and a label in each line";
  require(begins_as_text(list), fmt::format("{}: {}", list.string(), not_text));
  index.labels_are_given();
  index.set_list(list);
  index.watch_repeats(root);
  each_line(list, [&](const std::string& text, std::size_t number) {
    require(is_text(text), fmt::format("{}, line {}: {}", list.string(), number, not_text));
    const std::string_view line = trimmed(text, blanks);
    if (line.empty() || line.starts_with('#')) return false;
    // If the line has a tab, the path and the label may contain spaces.
    const bool tab = line.find('\t') != line.npos;
    const std::size_t at = line.find_last_of(tab ? "\t" : " ");
    const auto refuse = [&](const char* why) {
      throw InputError(fmt::format("{}, line {}: expected a path and a label, found \"{}\"{}",
                                   list.string(), number, line.substr(0, 200), why));
    };
    if (at == line.npos) refuse("");
    const std::string_view path = trimmed(line.substr(0, at), blanks),
                           label = trimmed(line.substr(at), blanks);
    if (named_as_image(label) && !named_as_image(path)) refuse("; the label comes last");
    index.add(split, path, label, number);
    return true;
  });
  say_repeats(list, index);
}

void index_paths(const fs::path& list, const fs::path& root, IndexWriter& index) {
  require_folder(root);
  require_regular(list);
  index.set_list(list);
  each_line(list, [&](const std::string& path, std::size_t number) {
    if (path.empty() || path.starts_with('#')) return false;
    require(named_as_image(path),
            fmt::format("{}, line {}: expected the path of an image ({}), found \"{}\"",
                        list.string(), number, image_endings, path.substr(0, 200)));
    index.add(Split::training, path, no_class, number);
    return true;
  });
}

}  // namespace lockstep::pack
