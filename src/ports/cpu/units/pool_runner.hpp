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
  using Runner::value;
  const std::byte* value(const Chunk& chunk, const nn::LineRange& lines) override {
    return c.value_at(index, chunk.lane, map, lines);
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
  std::byte* dinput_at(const Chunk& chunk) const;
  const std::byte* output_gradient(const Chunk& chunk);

  Map from_;                         // of the input
  std::size_t workspace_bytes_ = 0;  // of one row: oneDNN's record of which input was the largest
  PointRunner* inline_input_ = nullptr;
  std::size_t workspace_ = 0, dinput_ = 0, sum_ = 0;
  std::map<std::size_t, Prepared> prepared_;  // by rows
};

/// Max pooling where lanes share the rows: each makes some lines. In evaluation a chunk stands for
/// its lane, and has all rows; in training it is one band.
class BandedPool final : public Runner {
 public:
  BandedPool(Context& context, std::size_t number) : Runner(context, number) {}
  void plan() override;
  void bind() override;
  void before_forward(std::size_t lane) override;
  void forward(const Chunk& chunk) override;
  void backward(const Chunk& chunk) override;
  using Runner::value;
  const std::byte* value(const Chunk& chunk, const nn::LineRange& lines) override {
    return c.value_at(index, chunk.lane, map, lines);
  }
  const std::byte* input_gradient(const Chunk& chunk) override { return dinput_at(chunk); }

 private:
  /// One call of a lane.
  struct Job {
    Band band;
    dnnl::pooling_forward primitive;
    std::unordered_map<int, dnnl::memory> arguments;
  };
  void add_job(const Band& band);
  Band band_of(const Chunk& chunk) const;
  PoolBackward pass_of(const Chunk& chunk) const;
  std::byte* dinput_at(const Chunk& chunk) const;
  const std::byte* output_gradient(const Chunk& chunk, const nn::LineRange& lines);

  nn::WindowLines window_{};
  Map from_;  // of the input
  PointRunner* inline_input_ = nullptr;
  std::vector<std::vector<Job>> jobs_;  // by chunk
  std::size_t dinput_ = 0, sum_ = 0;    // in the lane's scratch
};

}  // namespace lockstep::cpu
