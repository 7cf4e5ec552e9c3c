#pragma once

#include <map>
#include <vector>

#include "ports/cpu/plan/lowering.hpp"
#include "ports/cpu/runner.hpp"
#include "ports/cpu/units/point_runner.hpp"

namespace lockstep::cpu {

/// Images as all values are stored.
dnnl::memory::desc nhwc(const nn::Shape& shape, std::size_t rows, Storage storage);

/// Max pooling, with oneDNN, of a point that its region runs or of one that only this unit reads.
class PoolRunner final : public Runner {
 public:
  PoolRunner(Context& context, std::size_t number) : Runner(context, number) {}
  void plan() override;
  void bind() override;
  void before_forward(std::size_t lane) override;
  void forward(const Chunk& chunk) override;
  void backward(const Chunk& chunk) override;
  const std::byte* value(const Chunk& chunk) override {
    return c.value_at(index, chunk, out_bytes_);
  }
  const std::byte* input_gradient(const Chunk& chunk) override { return dinput_at(chunk); }

 private:
  struct Prepared {
    dnnl::pooling_forward forward;
    dnnl::pooling_backward backward;
    std::vector<std::unordered_map<int, dnnl::memory>> forward_arguments,
        backward_arguments;  // by lane
  };
  Prepared prepare(std::size_t rows);
  PointRunner* inline_input() const;
  std::byte* dinput_at(const Chunk& chunk) const;
  const std::byte* output_gradient(const Chunk& chunk);

  std::size_t in_bytes_ = 0, out_bytes_ = 0;
  std::size_t workspace_bytes_ = 0;  // of one row: oneDNN's record of which input was the largest
  std::size_t workspace_ = 0, dinput_ = 0, sum_ = 0;
  std::map<std::size_t, Prepared> prepared_;  // by rows
};

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
