#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/rng.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/data/shard/shard_writer.hpp"
#include "tests/support/folder_fixture.hpp"

namespace lockstep::test {

inline data::DataSetInfo small_info() {
  data::DataSetInfo info;
  info.height = 5;
  info.width = 4;
  info.channels = 3;
  info.classes = {"cat", "", "grüner Hund"};
  info.mean = {0.5f, 0.25f, 0.125f};
  info.stddev = {1, 0.5f, 0.25f};
  return info;
}

/// Row `row` as in the fixture's shards.
inline std::vector<std::uint8_t> pixels(const data::DataSetInfo& info, std::size_t row) {
  std::vector<std::uint8_t> image(info.row_bytes());
  for (std::size_t i = 0; i < image.size(); ++i) {
    image[i] = static_cast<std::uint8_t>(draw(3, row, i, Draw::synth));
  }
  return image;
}

/// Rows [first, first + rows); row r has label r mod classes.
inline std::filesystem::path write_shard(const std::filesystem::path& path,
                                         const data::DataSetInfo& info, std::size_t first,
                                         std::size_t rows) {
  data::ShardWriter writer(path, info, rows);
  for (std::size_t row = first; row < first + rows; ++row) {
    writer.write(pixels(info, row), static_cast<std::int32_t>(row % info.classes.size()));
  }
  writer.finish();
  return path;
}

}  // namespace lockstep::test
