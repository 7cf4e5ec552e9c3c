#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"

namespace lockstep::test {

/// Laws that every Communicator keeps, whatever moves its data. Each function is collective over
/// `world`, which must be the ranks 0 to n - 1 of a run. It returns what is wrong, or nothing. All
/// ranks must compare what they got, because an error may show on one of them.

/// Memory that the communicator can move.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::shared_ptr<void> copy_in(const std::vector<std::byte>& bytes) = 0;
  virtual std::vector<std::byte> copy_out(const void* data, std::size_t bytes) = 0;
};

class HostMemory final : public Memory {
 public:
  std::shared_ptr<void> copy_in(const std::vector<std::byte>& bytes) override;
  std::vector<std::byte> copy_out(const void* data, std::size_t bytes) override;
};

/// Every verb, of every type, in groups of all kinds, for lengths from 0 to several messages, gives
/// the exact result, and touches nothing else.
std::string fault_of_verbs(comm::Communicator& world, Memory& memory);

/// Collectives of two groups that are in flight together do not mix. Those on the same memory
/// follow each other: a sum inside of each row, then over the columns, is the sum over the world.
std::string fault_of_groups_together(comm::Communicator& world, Memory& memory);

/// Messages between two ranks keep their order, and ranks that exchange many of them together do
/// not wait for each other.
std::string fault_of_messages(comm::Communicator& world, Memory& memory);

/// Channels have no order against each other: receives that were put in early hold up no sum and no
/// message of another one, however many they are.
std::string fault_of_channels(comm::Communicator& world, Memory& memory);

/// Sums of 16 bits add in float and round once (on the host).
std::string fault_of_rounding(comm::Communicator& world, Memory& memory);

/// The groups of a group know their ranks, and a group of one moves nothing.
std::string fault_of_nested_groups(comm::Communicator& world, Memory& memory);

/// Wrong arguments are errors that begin with the collective's name, and leave the world usable.
std::string fault_of_arguments(comm::Communicator& world, Memory& memory);

}  // namespace lockstep::test
