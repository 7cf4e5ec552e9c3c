#include "pack/source/csv_lines.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/words.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace {

constexpr std::size_t longest_line = 1 << 16;

}  // namespace

CsvLines::CsvLines(const std::filesystem::path& path)
    : path_(path), between_(has_ending(path, {".tsv"}) ? '\t' : ',') {
  require_regular(path);
  lines_.open(path);
  require(lines_.good(), fmt::format("{}: {}", path.string(), std::strerror(errno)));
}

void CsvLines::refuse(std::string_view what) const {
  throw InputError(fmt::format("{}, line {}: {}", path_.string(), number_, what));
}

bool CsvLines::next(std::vector<std::string>& fields) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";  // of UTF-8, which some programs write
  for (std::string line; std::getline(lines_, line);) {
    if (++number_ == 1 && line.starts_with(mark)) line.erase(0, mark.size());
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (line.size() > longest_line || line.find('\0') != line.npos) refuse("is not text");
    fields = split(line);
    return true;
  }
  require(lines_.eof(), fmt::format("{}: cannot be read after line {}", path_.string(), number_));
  return false;
}

std::vector<std::string> CsvLines::split(std::string_view line) const {
  std::vector<std::string> fields;
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

void CsvLines::skip_blanks(std::string_view& line) const {
  while (line.starts_with(' ') || (between_ != '\t' && line.starts_with('\t')))
    line.remove_prefix(1);
}

/// Takes "a ""quoted"" field" from the line's beginning.
void CsvLines::unquote(std::string_view& line, std::string& field) const {
  for (std::size_t at = 1;; ++at) {
    if (at >= line.size()) refuse("has a quotation mark without its pair (a field is on one line)");
    if (line[at] == '"') {
      const bool doubled = at + 1 < line.size() && line[at + 1] == '"';
      if (!doubled) return line.remove_prefix(at + 1);
      ++at;
    }
    field += line[at];
  }
}

std::string CsvLines::say_separator(const std::vector<std::string>& fields) const {
  for (const char other : {';', '\t', '|', ','})
    if (fields.size() == 1 && other != between_ && fields[0].find(other) != std::string::npos)
      return fmt::format("; {} seem to be between the fields: write '{}'{}",
                         other == '\t' ? "tabs" : fmt::format("'{}'", other), between_,
                         other == '\t' ? ", or name the file .tsv" : "");
  return "";
}

std::optional<std::size_t> column_of_paths(const std::vector<std::string>& header) {
  constexpr std::string_view names[] = {"path",     "file",  "filename",   "file-name",
                                        "filepath", "image", "image-path", "image-name"};
  for (std::size_t i = 0; i < header.size(); ++i)
    if (std::ranges::find(names, plain_form(header[i])) != std::end(names)) return i;
  return std::nullopt;
}

}  // namespace lockstep::pack
