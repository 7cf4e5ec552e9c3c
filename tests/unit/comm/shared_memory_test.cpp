#include "comm/two_level/node_segment.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/base/room.hpp"

using namespace lockstep;
using namespace lockstep::comm;
using Catch::Contains;

TEST_CASE("shared memory is zero at first, and one who attaches sees what another writes",
          "[shared_memory]") {
  const SharedMemory mine = SharedMemory::create(100000);
  const SharedMemory other = SharedMemory::attach(mine.address(), 100000);
  REQUIRE(mine.data() != other.data());
  CHECK(reinterpret_cast<std::uintptr_t>(mine.data()) % page_bytes() == 0);
  CHECK(other.data()[99999] == std::byte{0});
  mine.data()[99999] = std::byte{7};
  CHECK(other.data()[99999] == std::byte{7});
}

TEST_CASE("hidden memory, other memory and memory of another size cannot be attached",
          "[shared_memory]") {
  SharedMemory mine = SharedMemory::create(5000);
  CHECK_THROWS_WITH(SharedMemory::attach(mine.address(), 5001),
                    Contains("is not the memory of a rank of this node"));
  std::string other = mine.address();
  other.back() = other.back() == '1' ? '2' : '1';
  CHECK_THROWS_WITH(SharedMemory::attach(other, 5000),
                    Contains("is not the memory of a rank of this node"));
  CHECK_THROWS_AS(SharedMemory::attach("", 5000), Error);
  mine.hide();
  CHECK_THROWS_AS(SharedMemory::attach(mine.address(), 5000), Error);
  mine.data()[0] = std::byte{1};  // it stays where it is
}
