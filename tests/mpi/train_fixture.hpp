#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/device/host_stream.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::test {

/// A world of one rank inside this process, to compare the real one with.
class SoloCommunicator final : public comm::Communicator {
 public:
  int rank() const override { return 0; }
  int world() const override { return 1; }
  Stream& network() override { return network_; }
  void all_reduce_sum(float*, std::size_t, std::string_view) override {}
  void progress() override {}

 private:
  HostStream network_;
};

class SoloControl final : public comm::Control {
 public:
  int rank() const override { return 0; }
  int world() const override { return 1; }
  void barrier(std::string_view) override {}
  std::vector<std::string> gather(const std::string& mine, std::string_view) override {
    return {mine};
  }
  std::string broadcast(const std::string& mine, std::string_view) override { return mine; }
  std::vector<double> sum(const std::vector<double>& mine, std::string_view) override {
    return mine;
  }
  std::vector<double> max(const std::vector<double>& mine, std::string_view) override {
    return mine;
  }
};

constexpr std::size_t kSide = 16, kClasses = 10;

/// Rows that every rank makes alike.
struct Rows {
  explicit Rows(std::size_t count);
  /// Rows [first, first + count) as a batch.
  data::Batch batch(std::size_t first, std::size_t count) const;

  std::vector<std::uint8_t> images;
  std::vector<data::Target> targets;
};

/// A small residual network, trained on micro-batches of `rows`.
train::TrainerSpec small_trainer(std::size_t rows);

/// All weights (or momentum) of the learned tensors, in the plain layout.
std::vector<float> learned_values(train::Trainer& trainer, Part part);

/// ||a - b|| / ||b||; NaN for values that are none.
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
