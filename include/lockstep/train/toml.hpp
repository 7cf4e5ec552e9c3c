#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::train {

enum class TomlKind { text, number, boolean, list };

/// One `key = value` of a TOML file.
struct TomlEntry {
  std::string key;  ///< dotted, the section's name in front: "optim.lr"
  TomlKind kind = TomlKind::text;
  /// A text without its quotes; a number without '_' and a leading '+'; a list's numbers, separated
  /// by commas.
  std::string value;
  std::size_t line = 0;  ///< from 1
};

/// Reads the part of TOML that a configuration needs: comments, [sections], bare, quoted and dotted
/// keys, strings on one line, numbers, booleans and flat lists of numbers, also over several lines.
/// Strict: what it does not understand (inline tables, arrays of tables, strings over several
/// lines), and a key or a section that stands twice, is an InputError that names `origin` and the
/// line. (CLI11's own reader skips short lines, cuts strings at '#' and joins repeated keys.)
std::vector<TomlEntry> read_toml(std::string_view text, const std::string& origin);

/// `text` as a TOML basic string with its quotes, on one line whatever characters it has.
std::string toml_quote(std::string_view text);

}  // namespace lockstep::train
