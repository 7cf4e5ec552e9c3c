#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/chunked/pixel_form.hpp"
#include "data/shard/shard_file.hpp"

namespace lockstep::data {

/// Rows of floats, to be looked at: `block_rows` at a time.
struct FloatRows {
  const std::filesystem::path& path;
  const PixelForm& form;
  std::size_t rows = 0, block_rows = 1;
  /// The numbers of the block that holds this row, as stored.
  std::function<void(std::size_t row, std::vector<std::uint8_t>& numbers)> read;
};

struct JudgedLevels {
  Levels levels;
  std::string doubt;  ///< what rounding loses, where that is worth a warning
};

/// Chooses the range that becomes 256 levels (0 to 1 or 0 to 255), unless it is `given`, by up to
/// 128 rows (or their chunks), spread over the file; large rows are fewer, at least 8. Throws
/// InputError naming the file: where the numbers are in no such range, are not finite, or would
/// change by more than 3 % of a channel's deviation (root mean square) when they are rounded. More
/// than 1 % is doubtful, and so is one level that takes most of a channel's numbers, which differ.
JudgedLevels judge_levels(const FloatRows& rows, const std::optional<Levels>& given);

}  // namespace lockstep::data
