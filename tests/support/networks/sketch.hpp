#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/nn/network.hpp"
#include "tests/support/networks/oracle.hpp"

namespace lockstep::test {
using namespace lockstep::backend;

/// Small networks of odd sizes in which every node and every pattern of the ResNets occurs.
nn::Network plain();
nn::Network padded_shortcuts();  ///< option A
nn::Network bottlenecks();       ///< 7x7 stem, max pooling, 1x1 with stride, option B
nn::Network pool_as_skip();      ///< a convolution and a sum read the pooled value
nn::Network grouped();           ///< 8 groups of 4 channels; 2 of 32, with stride; means as skip
nn::Network wide();              ///< filters of more rows and columns than a tile has
/// A convolution with a stride reads the image.
nn::Network strided_stem(std::size_t channels, std::size_t kernel, std::size_t stride);
std::vector<nn::Network> all_sketches();

/// A network with weights, a batch, and the oracle's results for them: a pure function of the seed.
struct Case {
  Case(const nn::Network& net, std::size_t rows, std::uint64_t seed);
  nn::Network network;
  Oracle oracle;
  std::vector<double> images;
  std::vector<data::Target> targets;
  double loss = 0;
};

/// A case in which rounding cannot change the branch that any ReLU or pooling takes.
Case settled_case(const nn::Network& network, std::size_t rows);

/// Whether this processor computes in bf16; says that the test is skipped where not.
bool has_bf16();

/// |got - want| / |want|; NaN if anything is.
double distance(const std::vector<float>& got, const std::vector<double>& want);

/// That of a case's training, with smoothing.
ProgramSpec spec_of(const Case& c, std::size_t rows, Precision precision);

std::vector<float> exported(const Parameters& parameters, Part part, std::size_t slice);

/// A case's network and weights on a backend, with a program of `rows` rows.
struct Compiled {
  Compiled(const Case& c, const ProgramSpec& spec, std::unique_ptr<Backend> on);
  Compiled(const Case& c, std::size_t rows, std::unique_ptr<Backend> on, Precision precision,
           bool deterministic = false, bool fuse_norms = false, Winograd winograd = {});
  /// Forward and backward over rows [first, first + rows) of the case; the sum of the losses.
  double run(const Case& c, std::size_t first, bool accumulate);
  std::vector<float> exported(Part part, std::size_t slice) const;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Program> program;
  std::vector<float> images;
};

/// The distance of all gradients together from `want`, by tensor name.
double gradient_distance(const Compiled& compiled,
                         const std::map<std::string, std::vector<double>>& want);

}  // namespace lockstep::test
