#pragma once

#include <string>
#include <vector>

#include "ports/cuda/parameters.hpp"
#include "ports/cuda/program.hpp"
#include "tests/gpu/steps/numbers.hpp"
#include "tests/support/networks/sketch.hpp"

namespace lockstep::test::steps {

/// What each step of a program's tape must leave, computed in double precision from what the step's
/// inputs hold: numbers that are already rounded to the program's storage. So no error of an
/// earlier step is in it. Of a whole network in training, in 16 bits.
class Wanted {
 public:
  /// Of a program whose batch is the case's images and targets. All must outlive it.
  Wanted(const Compiled& compiled, const Case& c);
  /// Called before the step runs, with its name.
  std::vector<Output> forward(const std::string& step);
  std::vector<Output> backward(const std::string& step, bool accumulate);
  /// "conv", "norm", ...: of the newest step.
  const std::string& kind() const { return kind_; }

 private:
  using Unit = cuda::PlannedUnit;
  using Outputs = std::vector<Output>;
  /// What a ReLU lets through of a gradient: where its input is above 0.
  struct Through {
    Sums g;
    Numbers doubted;  ///< by number: |gradient| where rounding decides, else 0
  };
  /// One channel's numbers, by channel.
  struct Channels {
    Sums mean, variance, inverse, scale, shift;
  };

  const Unit& unit(std::size_t u) const { return plan_.units[u]; }
  const nn::Node& node(const Unit& p) const { return network_.nodes[p.unit.node]; }
  const Unit& named(const std::string& name);

  Stored stored(cuda::Place place, std::size_t count, Form form) const {
    return {program_.address(place, later_), count, form};
  }
  Stored value(const Unit& p) const { return stored(p.value, p.shape.count(), form_); }
  Stored parameter(backend::Part part, const std::string& name) const;
  Stored weight_copies(const Unit& p) const;
  Stored channel_array(const Unit& norm, float* cuda::NormChannels::*array) const;
  /// The gradients from the readers, added up.
  Sums gradient(const Unit& p) const;
  /// What a convolution reads, and its shape, both as if nothing was folded.
  Sums conv_input(const Unit& p) const;
  cuda::ConvShape conv_shape(const Unit& p) const;
  double rounding_here() const { return rounding(form_); }

  Outputs image(const Unit& p) const;
  Outputs conv(const Unit& p) const;
  Outputs norm(const Unit& p) const;
  Outputs max_pool(const Unit& p) const;
  Outputs mean_pool(const Unit& p) const;
  Outputs subsample(const Unit& p) const;
  Outputs head(const Unit& p) const;
  Channels channels_of_batch(const Unit& p) const;
  Sums normalised(const Unit& p, const Channels& n) const;
  Sums skipped(const Unit& p) const;

  Output sum_in_arena(Output added, double kept = 1) const;
  Outputs data_gradient(const Unit& p) const;
  Outputs weight_gradient(const Unit& p) const;
  Outputs norm_gradient(const Unit& p) const;
  Outputs window_gradient(const Unit& p) const;
  Outputs mean_gradient(const Unit& p) const;
  Outputs head_data_gradient(const Unit& p) const;
  Outputs head_weight_gradient(const Unit& p) const;
  Outputs fused_data_gradient(const Unit& p, Sums dx) const;
  /// Rounding decides where what is before the ReLU is at most `doubt` of its size.
  Through through_relu(Sums g, const Sums& before, double doubt) const;
  Through after_relu(const Unit& p) const;

  const Case& c_;
  const cuda::CudaProgram& program_;
  const cuda::CudaParameters& parameters_;
  const cuda::ProgramPlan& plan_;
  const nn::Network& network_;
  Form form_;
  double loss_scale_ = 1;
  bool later_ = false, accumulate_ = false;
  std::string step_, kind_;
};

/// Of sums of products whose factors tensor cores round to 11 bits, once each.
Numbers of_tf32(const Sums& sums);

}  // namespace lockstep::test::steps
