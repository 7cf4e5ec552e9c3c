// The memory that a GPU copies from: where it is, and how fast it reaches the GPU.
#include <algorithm>
#include <cstring>
#include <iostream>

#include <catch2/catch.hpp>

#include "lockstep/cluster/topology/pages.hpp"
#include "tests/gpu/fixture.hpp"

using namespace lockstep;
using namespace lockstep::device;

TEST_CASE("a GPU's upload is measured, and the pinned pages are found", "[gpu]") {
  const auto backend = test::gpu();
  if (!backend) return;
  const PinnedBuffer buffer = backend->device().allocate_pinned(std::size_t{8} << 20);
  std::memset(buffer.data(), 1, buffer.size());
  const auto rate = backend->device().upload_rate(buffer);
  REQUIRE(rate);
  CHECK(*rate > 1e8);
  CHECK(*rate < 1e12);
  const cluster::PagesOnNodes where = cluster::locate_pages({{buffer.data(), buffer.size()}});
  REQUIRE_FALSE(where.empty());
  if (where.contains(-1)) {
    std::cout << "SKIPPED: the kernel does not show where pages are\n";
    return;
  }
  for (const auto& [node, pages] : where) {
    CHECK(pages > 0);
  }
}
