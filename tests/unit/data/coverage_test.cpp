#include <catch2/catch.hpp>

#include "data/chunked/whole_data.hpp"
#include "lockstep/base/rng.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

/// The same, cell by cell.
Uncovered by_cells(const std::vector<Box>& boxes, const Extents& shape) {
  Uncovered result;
  for (unsigned long long row = 0; row < shape[0]; ++row) {
    bool all = true;
    for (unsigned long long y = 0; y < shape[1]; ++y)
      for (unsigned long long x = 0; x < shape[2]; ++x) {
        const Extents cell = {row, y, x};
        all = all && std::any_of(boxes.begin(), boxes.end(), [&](const Box& box) {
                for (std::size_t d = 0; d < 3; ++d)
                  if (cell[d] < box.begin[d] || cell[d] >= box.end[d]) return false;
                return true;
              });
      }
    if (all) continue;
    if (result.rows++ == 0) result.first = row;
  }
  return result;
}

}  // namespace

TEST_CASE("rows that no box covers wholly are counted as one would cell by cell", "[external]") {
  const Extents shape = {7, 3, 4};
  std::size_t covered = 0;
  for (std::uint64_t trial = 0; trial < 2000; ++trial) {
    std::vector<Box> boxes;
    const std::size_t count = draw(1, trial, 0, Draw::synth) % 9;
    for (std::size_t b = 0; b < count; ++b) {
      Box box{shape, shape};
      for (std::size_t d = 0; d < 3; ++d) {
        // Half of them begin or end at an edge, some beyond the array.
        const std::uint64_t begin = draw(2, trial, 3 * b + d, Draw::synth) % (2 * shape[d]);
        box.begin[d] = begin >= shape[d] ? 0 : begin;
        box.end[d] = box.begin[d] + 1 + draw(3, trial, 3 * b + d, Draw::synth) % (2 * shape[d]);
      }
      boxes.push_back(box);
    }
    const Uncovered found = uncovered_rows(boxes, shape), expected = by_cells(boxes, shape);
    REQUIRE(found.rows == expected.rows);
    REQUIRE(found.first == expected.first);
    covered += shape[0] - found.rows;
  }
  CHECK(covered > 1000);  // so both happen
}
