#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/words.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

using Fields = std::vector<std::string>;

constexpr std::size_t longest_line = 1 << 16;

struct Columns {
  std::size_t path = 0, label = 1;
};

/// Reads CSV (RFC 4180), whose fields stay on one line; a .tsv has tabs between them. Blanks around
/// a field do not belong to it, except in quotes.
class CsvList {
 public:
  CsvList(const fs::path& path, IndexWriter& index)
      : path_(path), index_(index), between_(has_ending(path, {".tsv"}) ? '\t' : ',') {
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
      if (header_ && fields.size() > header_fields_)
        refuse(fmt::format("has {}, but the header only {}: a field with a '{}' is in quotes",
                           counted(fields.size(), "field"), header_fields_, between_));
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
      skip_blanks(line);
      if (!line.starts_with('"')) {
        const std::size_t end = std::min(line.find(between_), line.size());
        field = line.substr(0, end);
        while (field.ends_with(' ') || field.ends_with('\t')) field.pop_back();
        if (field.find('"') != field.npos) refuse("has a quotation mark inside a field");
        line.remove_prefix(end);
      } else {
        unquote(line, field);
        skip_blanks(line);
      }
      if (line.empty()) return fields;
      if (line[0] != between_) refuse("has text after a quoted field");
      line.remove_prefix(1);
    }
  }

  void skip_blanks(std::string_view& line) const {
    while (line.starts_with(' ') || (between_ != '\t' && line.starts_with('\t')))
      line.remove_prefix(1);
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
    header_fields_ = fields.size();
    const auto path = column(fields, path_names), label = column(fields, label_names);
    if (!path || !label)
      refuse(
          fmt::format("expected a path and a label, or a header that names the columns 'path' "
                      "and 'label'; found: {}{}",
                      join(fields, ", ").substr(0, 200), say_separator(fields)));
    columns_ = {*path, *label};
    say_columns(fields);
    return true;
  }

  /// Some programs write ';' or tabs.
  std::string say_separator(const Fields& fields) const {
    for (const char other : {';', '\t', '|', ','})
      if (fields.size() == 1 && other != between_ && fields[0].find(other) != std::string::npos)
        return fmt::format("; {} seem to be between the fields: write '{}'{}",
                           other == '\t' ? "tabs" : fmt::format("'{}'", other), between_,
                           other == '\t' ? ", or name the file .tsv" : "");
    return "";
  }

  /// Which column has the label is in doubt where several could have it.
  void say_columns(const Fields& fields) {
    const auto names = [&](std::size_t from) {
      return std::count_if(fields.begin(), fields.end(), [&](const std::string& field) {
        return plain_form(field) == plain_form(fields[from]);
      });
    };
    for (const std::size_t one : {columns_->path, columns_->label})
      if (names(one) > 1) refuse(fmt::format("names the column '{}' twice", fields[one]));
    std::string others;
    for (std::size_t i = 0; i < fields.size(); ++i)
      if (i != columns_->label && i != columns_->path && column({fields[i]}, label_names))
        others += fmt::format("{}'{}'", others.empty() ? "" : ", ", fields[i]);
    if (!others.empty())
      index_.remark(
          one_line(fmt::format("{}: the labels are in the column '{}', and {} is not used",
                               path_.string(), fields[columns_->label], others)));
  }

  using ColumnNames = std::array<std::string_view, 8>;
  static constexpr ColumnNames path_names{"path",     "file",  "filename",   "file-name",
                                          "filepath", "image", "image-path", "image-name"};
  static constexpr ColumnNames label_names{"label",    "class",  "class-name", "label-name",
                                           "category", "target", "class-id",   "label-id"};

  /// The first of these names that a column has.
  static std::optional<std::size_t> column(const Fields& fields, const ColumnNames& names) {
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
  std::size_t header_fields_ = 0;
};

}  // namespace

void index_csv(const fs::path& list, const fs::path& root, Split split, IndexWriter& index) {
  require_folder(root);
  index.labels_are_given();
  index.set_list(list);
  index.watch_repeats(root);
  CsvList(list, index).read(split);
  say_repeats(list, index);
}

void say_repeats(const fs::path& list, IndexWriter& index) {
  const auto place = [&](const Repeat& twice) {
    return one_line(fmt::format("{}, lines {} and {}: {}", list.string(), twice.first, twice.second,
                                twice.name));
  };
  if (const auto twice = index.find_repeat(true))
    throw InputError(fmt::format("{}: one image has two labels, \"{}\" and \"{}\"", place(*twice),
                                 twice->first_label, twice->second_label));
  if (const auto twice = index.find_repeat(false))
    index.remark(fmt::format("{}: an image is listed again, and is packed each time ({} in all)",
                             place(*twice), twice->count));
}

}  // namespace lockstep::pack
