#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::config {

/// The kind of a value. `list` holds numbers only, `texts` is a list of texts only, `table` is an
/// empty table, `other` is a date, a time or a list of something else.
enum class TomlKind { text, number, boolean, list, texts, table, other };

/// One `key = value` of a TOML file.
struct TomlEntry {
  std::string key;  ///< dotted, with the names of its tables: "optim.lr"
  TomlKind kind = TomlKind::text;
  /// A text without its quotes; a number in decimal digits, with a '.' or an exponent if it is not
  /// an integer; the numbers of a list, separated by commas, or its texts, each on a line. Empty
  /// for tables and `other`.
  std::string value;
  std::size_t line = 0;  ///< of the key, from 1
};

/// Reads TOML 1.0 and returns its values in the order of their lines. Integers may be as large as
/// 2^64 - 1, and texts may have bytes that are not UTF-8, as paths do. Throws InputError "ORIGIN,
/// line N: ..." for what is not TOML, and for a key that appears twice.
std::vector<TomlEntry> read_toml(std::string_view text, const std::string& origin);

/// `text` as a TOML basic string with its quotes. It fits on one line whatever characters it has.
std::string toml_quote(std::string_view text);

}  // namespace lockstep::config
