#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/combine.hpp"
#include "comm/two_level/node_segment.hpp"
#include "comm/two_level/overlay.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/comm/waits/wait_deadline.hpp"

namespace lockstep::comm {

/// What the two-level sums of one communicator share.
struct TwoLevelChannel {
  Communicator& flat;
  std::unique_ptr<Communicator>
      across;  ///< the owners of one chunk on all nodes; null: none is ours
  NodeSegment segment;
  std::vector<int> node_ranks;  ///< by number on the node
  std::size_t owners;           ///< of chunks, on each node: its first ranks
  std::size_t part_floats;      ///< the most of one sum
  double deadline_s;
  std::uint64_t next = 0;         ///< sum
  std::vector<float> total = {};  ///< a piece's sum while it is added up
};

/// One sum over two levels, of at most the segment's slot. Ranks of a node add in float; 16 bits
/// round there once, and once more across nodes.
class TwoLevelSum final : public Overlay::Operation {
 public:
  TwoLevelSum(Overlay& overlay, std::shared_ptr<TwoLevelChannel> channel, Elements data,
              std::string name);
  bool advance() override;

 private:
  enum class State { giving, adding, across, arriving, taking, done };
  struct Chunk {
    std::size_t begin = 0, size = 0;
  };
  Chunk chunk_of(std::size_t owner) const;
  void widen(const Chunk& chunk, float* to) const;
  void round(const float* from, const Chunk& chunk);
  bool step();
  bool give();
  bool add();
  bool go_across();
  bool share();
  bool take();
  void wait_for_node();
  std::optional<Mark> awaited() const;

  std::shared_ptr<TwoLevelChannel> owned_channel_;
  TwoLevelChannel& channel_;
  NodeSegment& segment_;
  const Elements data_;
  const Combine combine_;
  std::string name_;
  std::uint64_t sum_;
  State state_ = State::giving;
  std::unique_ptr<WaitDeadline> deadline_;
  std::optional<Countdown> countdown_;
};

}  // namespace lockstep::comm
