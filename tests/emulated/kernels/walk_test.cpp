// How kernels over [rows, channels] walk through the rows.
#include "tests/emulated/cuda/gpu.hpp"

// Kernels' code, for which gpu.hpp comes first.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "ports/cuda/kernels/columns.cuh"

using namespace lockstep;
using namespace lockstep::cuda;

namespace {

constexpr unsigned channels_at_once = 4;

/// The rows of one column in the order of the blocks, and of each thread's rows.
template <class Make>
std::vector<std::size_t> walked(const Matrix& shape, const Columns& cut, const Make& make) {
  std::vector<std::size_t> rows;
  const auto channels = static_cast<std::size_t>(shape.channels);
  emulated::run_grid(cut.grid, cut.block, [&] {
    const int channel = first_channel(channels_at_once);
    if (channel >= shape.channels) return;
    each_row<3>(
        shape, channel, make(), [](std::size_t at) { return at; },
        [&](std::size_t at, std::size_t loaded) {
          REQUIRE(at == loaded);
          REQUIRE(at % channels == static_cast<std::size_t>(channel));
          if (channel == 0) rows.push_back(at / channels);
        });
  });
  return rows;
}

}  // namespace

TEST_CASE("a walk takes each row once, from either end", "[kernel]") {
  for (const Matrix& shape : {Matrix{1, 8}, {7, 264}, {1000, 8}, {1000, 264}})
    for (const unsigned rows_a_thread : {4u, 8u})
      for (const bool down : {false, true})
        for (const bool together : {false, true}) {
          INFO(shape.rows << " x " << shape.channels << ", " << rows_a_thread
                          << (together ? ", grid" : ", block") << (down ? ", down" : ", up"));
          const Columns cut =
              columns(shape, channels_at_once, rows_a_thread, together ? 3 : 1u << 20);
          std::vector<std::size_t> rows = walked(shape, cut, [&] {
            return together ? walk_of_grid(shape, down) : walk_of_block(shape, cut.rows, down);
          });
          REQUIRE(rows.size() == shape.rows);
          CHECK(rows.front() == (down ? shape.rows - 1 : 0));
          // Blocks of neighbouring rows have those of the blocks before them on one side.
          for (std::size_t i = 0; !together && i < rows.size(); ++i) {
            const std::size_t nth = down ? shape.rows - 1 - rows[i] : rows[i];
            REQUIRE(nth / cut.rows == i / cut.rows);
          }
          std::ranges::sort(rows);
          for (std::size_t i = 0; i < rows.size(); ++i) REQUIRE(rows[i] == i);
        }
}
