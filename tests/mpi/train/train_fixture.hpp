#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/train/trainer.hpp"
#include "tests/support/laws/solo.hpp"

namespace lockstep::test {
using namespace lockstep::backend;

constexpr std::size_t image_side = 16, class_count = 10;

/// Rows that are the same on every rank.
struct Rows {
  explicit Rows(std::size_t count);
  /// Rows [first, first + count) as a batch.
  data::Batch batch(std::size_t first, std::size_t count) const;

  std::vector<std::uint8_t> images;
  std::vector<data::Target> targets;
};

/// Each rank is a replica.
inline comm::Grid all_replicas(const comm::Control& control) {
  return {control.rank(), {.replicas = control.world()}};
}

/// A small residual network, trained on micro-batches of `rows`.
train::TrainerSpec small_trainer(std::size_t rows);

/// All weights (or momentum) of the learned tensors, in the plain layout.
std::vector<float> learned_values(train::Trainer& trainer, Part part);

/// Gives `to` this part of the state of `from`, from a slice on. On this rank alone.
void copy_part(train::Trainer& from, train::Trainer& to, Part part, std::size_t first = 0);

/// ||a - b|| / ||b||; NaN when a value is NaN.
double distance(const std::vector<float>& a, const std::vector<float>& b);

/// One shard of `rows` rows that rank 0 writes into a folder which all ranks see; removed at the
/// end.
class SharedShard {
 public:
  SharedShard(comm::Control& control, std::size_t rows);
  ~SharedShard();
  std::filesystem::path path() const { return folder_ / "rows.h5"; }

 private:
  comm::Control& control_;
  std::filesystem::path folder_;
};

}  // namespace lockstep::test
