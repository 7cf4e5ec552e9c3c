#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::pack {

/// The lines of a CSV file (RFC 4180), whose fields stay on one line; a .tsv has tabs between them.
/// Blanks around a field do not belong to it, except in quotes. Throws InputError naming the file
/// and the line.
class CsvLines {
 public:
  explicit CsvLines(const std::filesystem::path& path);
  /// False at the end. Empty lines are passed over.
  bool next(std::vector<std::string>& fields);
  std::size_t number() const { return number_; }  ///< of that line
  char between() const { return between_; }
  /// Throws InputError about that line.
  [[noreturn]] void refuse(std::string_view what) const;
  /// "; ';' seem to be between the fields: ...": some programs write that or tabs.
  std::string say_separator(const std::vector<std::string>& fields) const;

 private:
  std::vector<std::string> split(std::string_view line) const;
  void skip_blanks(std::string_view& line) const;
  void unquote(std::string_view& line, std::string& field) const;

  std::filesystem::path path_;
  std::ifstream lines_;
  char between_;
  std::size_t number_ = 0;
};

/// Which of a header's columns has the images' paths.
std::optional<std::size_t> column_of_paths(const std::vector<std::string>& header);

}  // namespace lockstep::pack
