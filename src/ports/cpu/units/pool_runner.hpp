#pragma once

#include <map>
#include <vector>

#include "ports/cpu/plan/lowering.hpp"
#include "ports/cpu/runner.hpp"
#include "ports/cpu/units/point_runner.hpp"

namespace lockstep::cpu {

/// Images as all values are stored.
dnnl::memory::desc nhwc(const nn::Shape& shape, std::size_t rows, Storage storage);

/// Pooling of a point that its region runs or of one that only this unit reads.
class Pool : public Runner {
 public:
  Pool(Context& context, std::size_t number) : Runner(context, number) {}
  void before_forward(std::size_t lane) override;
  void plan_messages() override;
  using Runner::value;
  const std::byte* value(const Chunk& chunk, const nn::LineRange& lines) override {
    return c.value_at(index, chunk.lane, map, lines);
  }
  const std::byte* input_gradient(const Chunk& chunk) override { return dinput_at(chunk); }

 protected:
  void plan_input();
  /// `most_lines`: of output_gradient().
  void plan_training(std::size_t most_lines);
  std::byte* dinput_at(const Chunk& chunk) const;
  /// Of these lines of the output. Others than the chunk's own are there where the readers ran in
  /// later regions.
  const std::byte* output_gradient(const Chunk& chunk, const nn::LineRange& lines);

  Map from_;                             // of the input
  PointRunner* inline_input_ = nullptr;  // the point that only this unit reads, and runs

 private:
  GradientPlace dinput_;
  std::size_t sum_ = 0;  // in the lane's scratch
};

/// The same with oneDNN, of whole images.
class PoolRunner final : public Pool {
 public:
  using Pool::Pool;
  void plan() override;
  void bind() override;
  void forward(const Chunk& chunk) override;
  void backward(const Chunk& chunk) override;

 private:
  using Arguments = std::unordered_map<int, dnnl::memory>;
  struct Prepared {
    dnnl::pooling_forward forward;
    dnnl::pooling_backward backward;
    std::vector<Arguments> forward_arguments, backward_arguments;  // by lane
  };
  Prepared prepare(std::size_t rows);
  void set_workspace(Arguments& arguments, const Chunk& chunk) const;

  std::size_t workspace_bytes_ = 0;  // of one row: oneDNN's record of which input was the largest
  std::size_t workspace_ = 0;
  std::map<std::size_t, Prepared> prepared_;  // by rows
};

/// The same where lanes share the rows: each makes some lines. In evaluation a chunk stands for its
/// lane, and has all rows; in training it is one band.
class BandedPool final : public Pool {
 public:
  using Pool::Pool;
  void plan() override;
  void bind() override;
  void forward(const Chunk& chunk) override;
  void backward(const Chunk& chunk) override;

 private:
  /// One call of a lane.
  struct Job {
    Band band;
    dnnl::pooling_forward primitive;
    std::unordered_map<int, dnnl::memory> arguments;
  };
  void add_job(const Band& band);
  PoolBackward pass_of(const Chunk& chunk) const;

  nn::WindowLines window_{};
  std::vector<std::vector<Job>> jobs_;  // by chunk
};

}  // namespace lockstep::cpu
