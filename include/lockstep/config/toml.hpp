#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::config {

/// The kind of a value. `list` holds numbers only, `table` is an empty one; `other`: a date, a
/// time, a list of something else.
enum class TomlKind { text, number, boolean, list, table, other };

/// One `key = value` of a TOML file.
struct TomlEntry {
  std::string key;  ///< dotted, with the names of its tables: "optim.lr"
  TomlKind kind = TomlKind::text;
  /// A text without its quotes; a number in decimal digits, with a '.' or an exponent if it is no
  /// integer; a list's numbers, separated by commas. Empty for tables and `other`.
  std::string value;
  std::size_t line = 0;  ///< of the key, from 1
};

/// Reads TOML 1.0 and gives its values in the order of their lines. Integers may be as large as
/// 2^64 - 1, and texts may have bytes that are not UTF-8, as paths do. Throws InputError "ORIGIN,
/// line N: ..." for what is not TOML, and for a key that is there twice.
std::vector<TomlEntry> read_toml(std::string_view text, const std::string& origin);

/// `text` as a TOML basic string with its quotes, on one line whatever characters it has.
std::string toml_quote(std::string_view text);

}  // namespace lockstep::config
