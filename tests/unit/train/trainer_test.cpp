// Checks what the configuration says about the optimizer and the model against the oracle's
// gradients and SGD's formula in double precision.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "lockstep/infer/trained_model.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/train/specs.hpp"
#include "lockstep/train/trainer.hpp"
#include "tests/support/laws/solo.hpp"
#include "tests/support/networks/oracle.hpp"
#include "tests/unit/train/trainer_fixture.hpp"

using namespace lockstep;
using namespace lockstep::config;
using namespace lockstep::backend;
using namespace lockstep::test;
using namespace lockstep::train;

namespace {

using BySlice = std::map<std::string, std::vector<double>>;

BySlice learned(Trainer& trainer) {
  BySlice values;
  const nn::ArenaLayout& layout = trainer.parameters().layout();
  for (std::size_t s = 0; s < layout.learned_slices; ++s) {
    std::vector<float> plain(layout.slices[s].tensor.count());
    trainer.parameters().export_slice(Part::weights, s, plain);
    values[layout.slices[s].tensor.name].assign(plain.begin(), plain.end());
  }
  return values;
}

/// Sutskever et al. 2013 in PyTorch's form; Nesterov's looks one step ahead.
void sgd(const Config::Optim& how, double lr, bool decays, const std::vector<double>& gradient,
         std::vector<double>& weight, std::vector<double>& velocity) {
  velocity.resize(weight.size());
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const double g = gradient[i] + (decays ? static_cast<double>(how.weight_decay) : 0) * weight[i];
    velocity[i] = static_cast<double>(how.momentum) * velocity[i] + g;
    weight[i] -=
        lr * (how.nesterov ? g + static_cast<double>(how.momentum) * velocity[i] : velocity[i]);
  }
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

/// MLPerf's reference of LARS; `lr` includes the trust ratio.
void lars(const Config::Optim& how, double lr, bool adapts, const std::vector<double>& gradient,
          std::vector<double>& weight, std::vector<double>& velocity) {
  velocity.resize(weight.size());
  const double decay = adapts ? static_cast<double>(how.weight_decay) : 0;
  const double w = norm_of(weight), g = norm_of(gradient);
  if (adapts && w > 0 && g > 0) lr *= static_cast<double>(how.trust) * w / (g + decay * w);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const double step = lr * (gradient[i] + decay * weight[i]);
    velocity[i] = static_cast<double>(how.momentum) * velocity[i] + step;
    weight[i] -=
        how.nesterov ? static_cast<double>(how.momentum) * velocity[i] + step : velocity[i];
  }
}

/// PyTorch's clip_grad_norm_. Returns the norm before it.
double clip(float limit, BySlice& gradients) {
  double sum = 0;
  for (const auto& [name, values] : gradients)
    for (const double v : values) sum += v * v;
  const double factor = static_cast<double>(limit) / (std::sqrt(sum) + 1e-6);
  if (limit == 0 || factor >= 1) return std::sqrt(sum);
  for (auto& [name, values] : gradients)
    for (double& v : values) v *= factor;
  return std::sqrt(sum);
}

/// The names of the tensors that decay-norm-and-bias = false still decays.
std::set<std::string> plain_weights(const nn::Network& network) {
  std::set<std::string> names;
  for (const nn::Tensor& tensor : nn::tensors(network))
    if (tensor.role == nn::Role::conv_weight || tensor.role == nn::Role::linear_weight)
      names.insert(tensor.name);
  return names;
}

/// ||got - want|| / ||want - before|| over the tensors that are, or are not, among `names`.
double apart(const BySlice& before, const BySlice& got, const BySlice& want,
             const std::set<std::string>& names, bool among) {
  double difference = 0, norm = 0;
  for (const auto& [name, values] : want) {
    if (names.contains(name) != among) continue;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(got.at(name)[i] - values[i], 2);
      norm += std::pow(values[i] - before.at(name)[i], 2);
    }
  }
  return std::sqrt(difference / norm);
}

}  // namespace

TEST_CASE("two steps are SGD's formula with what the configuration says", "[trainer]") {
  const char* toml =
      GENERATE("[optim]\ndecay = \"constant\"\n", "[optim]\nmomentum = 0.5\nnesterov = true\n",
               "[optim]\nmomentum = 0\nlabel-smoothing = 0.3\n",
               "[optim]\nweight-decay = 0.5\ndecay-norm-and-bias = false\nwarmup-epochs = 2\n",
               "[optim]\nclip-norm = 0.5\nweight-decay = 0.5\n", "[optim]\nclip-norm = 1000\n",
               "[optim]\nweight-decay = 0.5\n[model-options]\nshortcut = \"conv\"\n");
  INFO(toml);
  const Config config = given(toml);
  const Rows data;
  const auto backend = make_cpu_backend({});
  SoloCommunicator nobody;
  Trainer trainer(make_trainer_spec(config, small_data(), 1), *backend, nobody);
  const optim::ScheduleSpec schedule = make_schedule(config, 1);

  const BySlice before = learned(trainer);
  Oracle oracle(trainer.network());
  oracle.parameters = before;
  oracle.label_smoothing = config.optim.label_smoothing;
  BySlice velocity;
  const std::set<std::string> weights = plain_weights(trainer.network());
  for (std::uint64_t step = 0; step < 2; ++step) {
    const float lr = optim::learning_rate(schedule, step) / 10;
    const double loss = oracle.forward(data.images, data.targets);
    std::map<std::string, std::vector<double>> gradients = oracle.backward();
    const double norm = clip(config.optim.clip_norm, gradients);
    for (const auto& [name, gradient] : gradients) {
      sgd(config.optim, lr, weights.contains(name) || config.optim.decay_norm_and_bias, gradient,
          oracle.parameters[name], velocity[name]);
    }
    const StepReport report = trainer.step(data.batch, few_rows, lr);
    CHECK(report.metrics.loss / few_rows == Approx(loss).epsilon(1e-4));
    CHECK(report.gradient_norm.has_value() == (config.optim.clip_norm > 0));
    if (report.gradient_norm) CHECK(*report.gradient_norm == Approx(norm).epsilon(1e-3));
  }
  const BySlice after = learned(trainer);
  for (const bool among : {true, false})
    CHECK(apart(before, after, oracle.parameters, weights, among) <= 1e-3);
}

TEST_CASE("two steps are LARS's formula, also with several buckets and threads", "[trainer]") {
  const bool nesterov = GENERATE(false, true);
  Config config = given(
      "[optim]\nrule = \"lars\"\nlr = 10\ntrust = 0.01\nweight-decay = 0.05\n"
      "decay-norm-and-bias = false\n[model-options]\nzero-init-residual = true\n");
  config.optim.nesterov = nesterov;
  config.comm.bucket_mb = 0.01f;
  const Rows data;
  const auto backend = make_cpu_backend({std::vector<std::vector<int>>(2)});
  SoloCommunicator nobody;
  Trainer trainer(make_trainer_spec(config, small_data(), 1), *backend, nobody);
  CHECK(trainer.exchange().buckets().size() > 10);
  const BySlice before = learned(trainer);
  Oracle oracle(trainer.network());
  oracle.parameters = before;
  const std::set<std::string> weights = plain_weights(trainer.network());
  BySlice velocity;
  for (const float lr : {0.5f, 0.25f}) {
    oracle.forward(data.images, data.targets);
    for (const auto& [name, gradient] : oracle.backward())
      lars(config.optim, lr, weights.contains(name), gradient, oracle.parameters[name],
           velocity[name]);
    trainer.step(data.batch, few_rows, lr);
  }
  const BySlice after = learned(trainer);
  for (const bool among : {true, false})
    CHECK(apart(before, after, oracle.parameters, weights, among) <= 1e-3);
}

TEST_CASE("Muon moves filters, and SGD at its factor the first convolution, the last layer, norms",
          "[trainer]") {
  const Rows data;
  const auto backend = make_cpu_backend({});
  SoloCommunicator nobody;
  const std::string factor = GENERATE("0", "0.5");
  Trainer trainer(make_trainer_spec(given("[optim]\nrule = \"muon\"\nlr = 0.1\nweight-decay = 0\n"
                                          "rest-momentum = 0\nrest-lr-factor = " +
                                          factor),
                                    small_data(), 1),
                  *backend, nobody);
  const BySlice before = learned(trainer);
  Oracle oracle(trainer.network());
  oracle.parameters = before;
  oracle.forward(data.images, data.targets);
  const auto gradients = oracle.backward();
  trainer.step(data.batch, few_rows, 0.1f);
  std::set<std::string> filters;
  for (const auto& [name, after] : learned(trainer)) {
    INFO(name);
    if (name.starts_with("layer") && name.find("conv") != std::string::npos) {
      filters.insert(name);
      // Scaled to the root of its outputs, and a step whose singular values are about 1.
      const auto& slice = trainer.parameters().layout().find(name);
      const double outputs = static_cast<double>(slice.tensor.shape[0]);
      CHECK(norm_of(after) == Approx(std::sqrt(outputs)).epsilon(0.2));
      CHECK(after != before.at(name));
      continue;
    }
    std::vector<double> apart(after.size());
    for (std::size_t i = 0; i < after.size(); ++i)
      apart[i] = after[i] - (before.at(name)[i] - 0.1 * std::stod(factor) * gradients.at(name)[i]);
    CHECK(norm_of(apart) <= 1e-4 * norm_of(gradients.at(name)) + 1e-12);
    if (factor == "0") CHECK(after == before.at(name));
  }
  CHECK(filters.size() == 18);
}

TEST_CASE("a recorded step needs a device that can repeat it, and says so", "[trainer]") {
  const auto backend = make_cpu_backend({});
  SoloCommunicator nobody;
  CHECK_THROWS_WITH(
      Trainer(make_trainer_spec(given("graph = true"), small_data(), 1), *backend, nobody),
      Catch::Matchers::Contains("graph = true needs a GPU"));
}

TEST_CASE("the average is that of the weights after each step, and changes nothing else",
          "[trainer]") {
  const Rows data;
  const auto backend = make_cpu_backend({});
  SoloCommunicator nobody;
  const Config config = given("optim.ema = 0.5");
  Trainer trainer(make_trainer_spec(config, small_data(), 1), *backend, nobody);
  Trainer plain(make_trainer_spec(given(""), small_data(), 1), *backend, nobody);
  CHECK_FALSE(plain.parameters().has_average());
  std::vector<std::vector<double>> want;
  for (const auto& values : state(trainer, Part::weights))
    want.emplace_back(values.begin(), values.end());
  trainer.continue_after(5);
  for (std::uint64_t step = 5; step < 12; ++step) {
    trainer.step(data.batch, few_rows, 0.01f);
    plain.step(data.batch, few_rows, 0.01f);
    const auto weights = state(trainer, Part::weights), got = state(trainer, Part::average);
    CHECK(weights == state(plain, Part::weights));
    // (1 + step) / (10 + step) reaches 0.5 at step 8.
    const double steps = static_cast<double>(step);
    const double decay = step < 8 ? (1 + steps) / (10 + steps) : 0.5;
    double apart = 0, moved = 0;
    for (std::size_t s = 0; s < want.size(); ++s)
      for (std::size_t i = 0; i < want[s].size(); ++i) {
        want[s][i] = decay * want[s][i] + (1 - decay) * weights[s][i];
        apart = std::max(apart, std::abs(got[s][i] - want[s][i]));
        moved = std::max(moved, std::abs(got[s][i] - static_cast<double>(weights[s][i])));
      }
    CHECK(apart <= 1e-6);
    CHECK(moved > 1e-4);
  }
}

TEST_CASE("the model's options reach the network", "[trainer]") {
  const auto count = [](const Config& config, auto wanted) {
    const nn::Network network = infer::make_network(config, small_data());
    return std::count_if(network.nodes.begin(), network.nodes.end(), wanted);
  };
  const auto zero = [](const nn::Node& node) { return node.zero_init; };
  const auto padded = [](const nn::Node& node) { return node.op == nn::Op::subsample_pad; };
  const auto convs = [](const nn::Node& node) { return node.op == nn::Op::conv; };
  CHECK(count(given(""), zero) == 0);
  CHECK(count(given("model-options.zero-init-residual = true"), zero) == 9);
  CHECK(count(given(""), padded) == 2);
  CHECK(count(given(""), convs) == 19);
  CHECK(count(given("model-options.shortcut = \"conv\""), padded) == 0);
  CHECK(count(given("model-options.shortcut = \"conv\""), convs) == 21);
}
