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
  std::string value;     ///< text without its quotes; a list as its items, comma-separated
  std::size_t line = 0;  ///< from 1
};

/// Reads the part of TOML that a configuration needs: comments, [sections], dotted bare keys,
/// strings on one line, numbers, booleans and flat lists of numbers. Strict: what it does not
/// understand, and a key that stands twice, is an InputError that names `origin` and the line.
/// (CLI11's own reader skips short lines, cuts strings at '#' and joins repeated keys.)
std::vector<TomlEntry> read_toml(std::string_view text, const std::string& origin);

/// `text` as a TOML basic string with its quotes.
std::string toml_quote(std::string_view text);

}  // namespace lockstep::train
