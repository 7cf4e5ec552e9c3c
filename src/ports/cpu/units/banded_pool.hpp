#pragma once

#include <vector>

#include "ports/cpu/plan/bands.hpp"
#include "ports/cpu/runner.hpp"

namespace lockstep::cpu {

/// Evaluation's max pooling where lanes share the rows: each lane makes some lines. A chunk stands
/// for its lane; it has all rows.
class BandedPool final : public Runner {
 public:
  BandedPool(Context& context, std::size_t number) : Runner(context, number) {}
  void plan() override;
  void bind() override;
  void forward(const Chunk& chunk) override;
  const std::byte* value(const Chunk& chunk) override {
    return c.value_at(index, chunk, to_.count() * bytes_of(c.storage));
  }
  const std::byte* input_gradient(const Chunk&) override { return nullptr; }

 private:
  /// One call of a lane.
  struct Job {
    Band band;
    dnnl::pooling_forward primitive;
    std::unordered_map<int, dnnl::memory> arguments;
  };
  Job job(const Band& band);

  nn::Shape from_, to_;
  std::vector<std::vector<Job>> jobs_;  // by lane
};

}  // namespace lockstep::cpu
