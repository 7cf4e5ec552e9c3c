#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// Writes one shard: rows as info.encoding says, int32 labels, where info.task is not classes what
/// is wanted of each output, and a CRC-32C of all of this per row.
/// Memory does not grow with the rows, except for 20 bytes and the file name of each. The file
/// appears at `path` only when finish() returns; an error leaves no file (InputError names the
/// path).
class ShardWriter {
 public:
  /// `name_bytes`: room for the name of the file that each row was made from; 0: there are none.
  ShardWriter(std::filesystem::path path, const DataSetInfo& info, std::size_t rows,
              std::size_t name_bytes = 0);
  ~ShardWriter();
  /// Names the next row's file. Of a name that is too long the end is kept.
  void name_next(std::string_view file);
  /// The next row: pixels. `wanted`: info.wanted_values() numbers, NaN where one is not known.
  void write(std::span<const std::uint8_t> image, std::int32_t label,
             std::span<const float> wanted = {});
  /// The next row: a JPEG file of an image of this size.
  void write_jpeg(std::span<const std::uint8_t> file, std::size_t height, std::size_t width,
                  std::int32_t label);
  void finish();  ///< exactly `rows` rows must have been written
 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
