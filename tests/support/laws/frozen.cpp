#include "tests/support/laws/frozen.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "lockstep/nn/partition.hpp"

namespace lockstep::test {
namespace {

constexpr std::size_t rows = 4;
constexpr float loss_scale = 1024;  // where there is one

std::vector<float> floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

/// The oracle's weights, with running statistics that are those of its batch: then a batch norm
/// gives the same in an evaluation as in training.
std::vector<float> settled(const Case& c, const nn::Tensor& tensor) {
  const nn::Node& norm = c.network.nodes[tensor.node];
  if (tensor.role == nn::Role::running_mean) return floats(c.oracle.batch_mean(norm.name));
  if (tensor.role != nn::Role::running_var) return floats(c.oracle.parameters.at(tensor.name));
  const double n = static_cast<double>(rows * norm.shape.height * norm.shape.width);
  std::vector<double> biased = c.oracle.batch_variance(norm.name);
  for (double& v : biased) v *= (n - 1) / n;
  return floats(biased);
}

void run(const Tape& tape) {
  for (const TapeStep& step : tape) step.run();
}

struct Frozen {
  Frozen(Backend& backend, const Case& c, const nn::Network& network, Precision precision)
      : parameters(backend.make_parameters(network, precision, Keeps::training)) {
    spec.batch = rows;
    spec.precision = precision;
    spec.loss.smoothing = 0.1f;
    spec.mean = spec.stddev = std::vector<float>(c.network.input.channels, 1.f);
    program = backend.compile(network, spec, *parameters);
    LossScale scale;
    scale.scale = loss_scale;
    parameters->set_loss_scale(scale);
    for (std::size_t s = 0; s < layout().slices.size(); ++s)
      parameters->import_slice(Part::weights, s, initial(c, s));
  }
  const nn::ArenaLayout& layout() const { return parameters->layout(); }
  /// A mean that moves is far from its batch's: it has to be seen to move.
  std::vector<float> initial(const Case& c, std::size_t slice) const {
    const nn::Tensor& tensor = layout().slices[slice].tensor;
    std::vector<float> values = settled(c, tensor);
    if (slice < layout().moving_slices() && tensor.role == nn::Role::running_mean)
      for (float& value : values) value += 1;
    return values;
  }

  std::unique_ptr<Parameters> parameters;
  ProgramSpec spec;
  std::unique_ptr<Program> program;
};

/// The distance of all gradients from the oracle's; a bias or scale alone may be near 0.
double distance_of_gradients(const Frozen& it,
                             const std::map<std::string, std::vector<double>>& want) {
  std::vector<float> got;
  std::vector<double> wanted;
  for (std::size_t s = 0; s < it.layout().learned_slices; ++s) {
    auto mine = exported(*it.parameters, Part::gradients, s);
    if (has_loss_scale(it.spec.precision))
      for (float& value : mine) value /= loss_scale;
    const auto& theirs = want.at(it.layout().slices[s].tensor.name);
    got.insert(got.end(), mine.begin(), mine.end());
    wanted.insert(wanted.end(), theirs.begin(), theirs.end());
  }
  return distance(got, wanted);
}

void check_layout(const Frozen& it, const Case& c, std::size_t last) {
  const nn::ArenaLayout& layout = it.layout();
  std::set<std::string> frozen, found;
  for (const nn::Tensor& tensor : nn::tensors(c.network))
    if (tensor.node <= last) frozen.insert(tensor.name);
  for (std::size_t s = layout.moving_slices(); s < layout.slices.size(); ++s)
    found.insert(layout.slices[s].tensor.name);
  CHECK(found == frozen);
  CHECK(layout.slices.size() == nn::tensors(c.network).size());
  std::set<std::size_t> final;
  for (const TapeStep& step : it.program->backward(false))
    for (const std::size_t slice : step.final_slices) CHECK(final.insert(slice).second);
  CHECK(final.size() == layout.moving_slices());
}

}  // namespace

void check_frozen(Backend& backend, const nn::Network& network, Precision precision,
                  double tolerance) {
  Case c(network, rows, 3);
  nn::Network tuned = network;
  const auto gradients = c.oracle.backward();
  for (const std::size_t last : nn::cut_points(network)) {
    tuned.frozen_nodes = last + 1;
    const auto made_by = network.nodes[last].op;
    const bool cuts_after_block = made_by == nn::Op::relu || made_by == nn::Op::max_pool;
    if (!cuts_after_block || nn::tensors(nn::trained_part(tuned)).empty()) continue;
    INFO(backend.name() << ", " << network.name << " frozen up to " << network.nodes[last].name
                        << " in " << to_string(precision));
    Frozen it(backend, c, tuned, precision);
    check_layout(it, c, last);
    std::vector<std::vector<float>> before;
    for (std::size_t s = 0; s < it.layout().slices.size(); ++s)
      before.push_back(exported(*it.parameters, Part::weights, s));
    const std::vector<float> images = floats(c.images);
    it.program->set_scalars({.lr = 0.1f, .gradient_scale = 1.f / rows});
    it.program->load_normalised(images, c.targets);
    run(it.program->forward());
    run(it.program->backward(false));
    CHECK(it.program->take_metrics().loss / rows == Approx(c.loss).epsilon(tolerance));
    CHECK(distance_of_gradients(it, gradients) <= tolerance);

    const optim::UpdateRule rule{
        .formula = optim::Sgd{},
        .weight_decay = std::vector<float>(it.layout().moving_slices(), 1e-3f)};
    backend.judge_gradients(*it.parameters);
    backend.update(*it.parameters, rule, {.lr = 0.1f}, 0, it.layout().learned_slices);
    backend.update_statistics(*it.parameters, 1);
    for (std::size_t s = 0; s < before.size(); ++s) {
      INFO(it.layout().slices[s].tensor.name);
      CHECK((exported(*it.parameters, Part::weights, s) == before[s]) ==
            (s >= it.layout().moving_slices()));
    }
  }
}

}  // namespace lockstep::test
