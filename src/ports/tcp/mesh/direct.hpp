#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/combine.hpp"
#include "ports/tcp/mesh/operation.hpp"

namespace lockstep::comm {

/// The operations of a mesh. All are direct: each rank sends to each other one that needs its data,
/// without rings or trees. A rank that is busy computing answers only now and then, so hops cost
/// more than messages. The data is cut into one chunk for each rank, and chunks into pieces, which
/// travel one by one.

/// Each rank gets the others' parts of its chunk and combines them with its own, in a fixed order
/// that starts with its own part and the next rank's. With `shares` it then sends each finished
/// piece to all others.
class MeshReduction final : public MeshOperation {
 public:
  MeshReduction(std::shared_ptr<const MeshGroup> group, MeshTag tag, std::string phase,
                Elements data, Reduction reduction, bool shares);

 private:
  void begin() override;
  void work() override;
  void combine(const Elements& piece, const std::byte* part, bool first, bool last);

  const Elements data_;
  const Combine combine_;
  const bool shares_;
  std::vector<Elements> mine_;    ///< the pieces of this rank's chunk
  std::size_t combined_ = 0;      ///< parts: of piece i / others and other i % others
  std::unique_ptr<Block> total_;  ///< of a piece that is added in float
};

/// Each rank sends its chunk to all others.
class MeshGathering final : public MeshOperation {
 public:
  MeshGathering(std::shared_ptr<const MeshGroup> group, MeshTag tag, std::string phase,
                Elements data);

 private:
  void begin() override;
  const Elements data_;
};

/// The root sends one chunk to each rank, which passes it on to all others: the root sends all
/// chunks once, and each other rank one chunk to all. It ends on the root when all have everything.
class MeshBroadcast final : public MeshOperation {
 public:
  MeshBroadcast(std::shared_ptr<const MeshGroup> group, MeshTag tag, std::string phase,
                Elements data, int root);

 private:
  void begin() override;
  void work() override;
  std::vector<Elements> chunk_of(int member) const;

  const Elements data_;
  const int root_;
  std::vector<Elements> mine_;
  std::size_t after_mine_ = 0;  ///< pieces that come from the root after these
  std::size_t passed_on_ = 0;   ///< of `mine_`
  bool done_ = false;           ///< the root was told that everything is here
};

/// From one rank to another. It ends on the sender when the receiver has everything.
class MeshTransfer final : public MeshOperation {
 public:
  MeshTransfer(std::shared_ptr<const MeshGroup> group, MeshTag tag, std::string phase,
               Elements data, int peer, bool sends);

 private:
  void begin() override;
  void work() override;

  const Elements data_;
  const bool sends_;
  bool done_ = false;  ///< the sender was told that everything is here
};

}  // namespace lockstep::comm
