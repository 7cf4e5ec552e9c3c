#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/edit_distance.hpp"
#include "lockstep/base/text/join.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

using Fields = std::vector<std::string>;

constexpr std::size_t longest_line = 1 << 16;

struct Columns {
  std::size_t path = 0, label = 1;
};

/// Reads CSV (RFC 4180), whose fields stay on one line; a .tsv has tabs between them.
class CsvList {
 public:
  CsvList(const fs::path& path, IndexWriter& index)
      : path_(path), index_(index), between_(path.extension() == ".tsv" ? '\t' : ',') {
    require_regular(path);
    lines_.open(path);
    require(lines_.good(), fmt::format("{}: {}", path.string(), std::strerror(errno)));
  }

  void read(Split split) {
    std::size_t images = 0;
    for (Fields fields; next(fields);) {
      if (!columns_ && take_header(fields)) continue;
      const auto [path, label] = *columns_;
      if (std::max(path, label) >= fields.size())
        refuse(fmt::format("has {}, but the label or the path is in column {}",
                           counted(fields.size(), "field"), std::max(path, label) + 1));
      if (fields[path].empty() || fields[label].empty()) refuse("has an empty path or label");
      if (!header_ && fields.size() != 2)
        refuse(fmt::format("has {} fields; without a header there are two, path and label",
                           fields.size()));
      index_.add(split, fields[path], fields[label], number_);
      ++images;
    }
    require(lines_.eof(), fmt::format("{}: cannot be read after line {}", path_.string(), number_));
    require(images > 0, fmt::format("{}: lists no images", path_.string()));
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw InputError(fmt::format("{}, line {}: {}", path_.string(), number_, what));
  }

  /// False at the end. Empty lines are passed over.
  bool next(Fields& fields) {
    constexpr std::string_view mark = "\xEF\xBB\xBF";  // of UTF-8, which some programs write
    for (std::string line; std::getline(lines_, line);) {
      if (++number_ == 1 && line.starts_with(mark)) line.erase(0, mark.size());
      if (line.ends_with('\r')) line.pop_back();
      if (line.empty()) continue;
      if (line.size() > longest_line || line.find('\0') != line.npos) refuse("is not text");
      fields = split(line);
      return true;
    }
    return false;
  }

  Fields split(std::string_view line) const {
    Fields fields;
    for (;;) {
      std::string& field = fields.emplace_back();
      if (!line.starts_with('"')) {
        const std::size_t end = std::min(line.find(between_), line.size());
        field = line.substr(0, end);
        if (field.find('"') != field.npos) refuse("has a quotation mark inside a field");
        line.remove_prefix(end);
      } else {
        unquote(line, field);
      }
      if (line.empty()) return fields;
      if (line[0] != between_) refuse("has text after a quoted field");
      line.remove_prefix(1);
    }
  }

  /// Takes "a ""quoted"" field" from the line's beginning.
  void unquote(std::string_view& line, std::string& field) const {
    for (std::size_t at = 1;; ++at) {
      if (at >= line.size())
        refuse("has a quotation mark without its pair (a field is on one line)");
      if (line[at] == '"') {
        const bool doubled = at + 1 < line.size() && line[at + 1] == '"';
        if (!doubled) return line.remove_prefix(at + 1);
        ++at;
      }
      field += line[at];
    }
  }

  /// True when the first line is a header, which names the columns; else its fields are a path and
  /// a label.
  bool take_header(const Fields& fields) {
    columns_.emplace();
    if (fields.size() == 2 && named_as_image(fields[0])) return false;
    header_ = true;
    const auto path = column(fields, {"path", "file", "filename", "file-name", "filepath", "image",
                                      "image-path", "image-name"});
    const auto label = column(fields, {"label", "class", "class-name", "label-name", "category",
                                       "target", "class-id", "label-id"});
    if (!path || !label)
      refuse(
          fmt::format("expected a path and a label, or a header that names the columns 'path' "
                      "and 'label'; found: {}",
                      join(fields, ", ").substr(0, 200)));
    columns_ = {*path, *label};
    return true;
  }

  /// The first of these names that a column has.
  static std::optional<std::size_t> column(const Fields& fields,
                                           const std::array<std::string_view, 8>& names) {
    for (const std::string_view name : names)
      for (std::size_t i = 0; i < fields.size(); ++i)
        if (plain_form(fields[i]) == name) return i;
    return std::nullopt;
  }

  const fs::path& path_;
  std::ifstream lines_;
  IndexWriter& index_;
  const char between_;
  std::size_t number_ = 0;
  std::optional<Columns> columns_;
  bool header_ = false;
};

}  // namespace

void index_csv(const fs::path& list, const fs::path& root, Split split, IndexWriter& index) {
  require_folder(root);
  index.labels_are_given();
  index.set_list(list);
  CsvList(list, index).read(split);
}

}  // namespace lockstep::pack
