#include "tests/support/laws/rules.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/rng.hpp"

namespace lockstep::test {
namespace {

using namespace lockstep::backend;
using Values = std::vector<double>;

constexpr int steps = 50;
constexpr double decay_of_weights = 0.05;

double norm_of(const Values& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

/// What a published program has of one tensor. w, g: of this step; t counts from 1.
struct Tensor {
  Values w, g, m, v;
  bool skipped = false;         ///< on the skip list
  std::size_t rows = 1;         ///< of a filter: its outputs
  double decay = 0, began = 0;  ///< began: its norm before the first step
  double lr_before = 0, lr = 0;
  int t = 0;
  double trust = 1;  ///< of the newest step
};
using Published = std::function<void(Tensor&)>;

double lars_trust(const Tensor& x, double eta) {
  const double w = norm_of(x.w), g = norm_of(x.g);
  return x.skipped || w == 0 || g == 0 ? 1 : eta * w / (g + x.decay * w);
}

/// mlcommons/training, lars_optimizer.py.
void lars_inside(Tensor& x, double momentum, double eta, bool nesterov) {
  x.trust = lars_trust(x, eta);
  for (std::size_t i = 0; i < x.w.size(); ++i) {
    const double step = x.lr * x.trust * (x.g[i] + x.decay * x.w[i]);
    x.m[i] = momentum * x.m[i] + step;
    x.w[i] -= nesterov ? momentum * x.m[i] + step : x.m[i];
  }
}

/// NVIDIA's SGDwFASTLARSV2: momentum correction, except on the skip list.
void lars_corrected(Tensor& x, double momentum, double eta) {
  x.trust = lars_trust(x, eta);
  const double correction = x.skipped || x.t == 1 ? 1 : x.lr / x.lr_before;
  for (std::size_t i = 0; i < x.w.size(); ++i) {
    x.m[i] = momentum * correction * x.m[i] + x.lr * x.trust * (x.g[i] + x.decay * x.w[i]);
    x.w[i] -= x.m[i];
  }
}

/// Intel's lars.py.
void lars_outside(Tensor& x, double momentum, double eta) {
  x.trust = lars_trust(x, eta);
  for (std::size_t i = 0; i < x.w.size(); ++i) {
    x.m[i] = momentum * x.m[i] + x.g[i] + x.decay * x.w[i];
    x.w[i] -= x.lr * x.trust * x.m[i];
  }
}

/// You et al. 2020 with Adam's bias correction; timm's Lamb without its clipping.
void lamb(Tensor& x, double beta1, double beta2, double epsilon) {
  Values u(x.w.size());
  for (std::size_t i = 0; i < u.size(); ++i) {
    x.m[i] = beta1 * x.m[i] + (1 - beta1) * x.g[i];
    x.v[i] = beta2 * x.v[i] + (1 - beta2) * x.g[i] * x.g[i];
    const double m = x.m[i] / (1 - std::pow(beta1, x.t)), v = x.v[i] / (1 - std::pow(beta2, x.t));
    u[i] = m / (std::sqrt(v) + epsilon) + x.decay * x.w[i];
  }
  const double a = norm_of(x.w), b = norm_of(u);
  x.trust = x.skipped || a == 0 || b == 0 ? 1 : a / b;
  for (std::size_t i = 0; i < u.size(); ++i) x.w[i] -= x.lr * x.trust * u[i];
}

/// KellerJordan/cifar10-airbench, airbench94_muon.py; torch.optim.SGD for the rest.
void muon(Tensor& x, const optim::Muon& by) {
  const double momentum = double{x.skipped ? by.rest_momentum : by.momentum};
  const double decay = x.skipped ? x.decay : 0;
  Values u(x.w.size());
  for (std::size_t i = 0; i < u.size(); ++i) {
    const double g = x.g[i] + decay * x.w[i];
    x.m[i] = momentum * x.m[i] + g;
    u[i] = by.nesterov ? g + momentum * x.m[i] : x.m[i];
  }
  const double norm = norm_of(x.w);
  if (!x.skipped && norm > 0)
    for (double& w : x.w) w *= std::sqrt(static_cast<double>(x.rows)) / norm;
  if (!x.skipped) {
    const double length = norm_of(u) + 1e-7;
    for (double& v : u) v /= length;
    u = newton_schulz(u, x.rows, by.iterations);
  }
  for (std::size_t i = 0; i < u.size(); ++i) x.w[i] -= x.lr * u[i];
}

float rate_at(int step, double highest) {
  return static_cast<float>(highest * std::min((step + 1) / 10.0, (steps + 5 - step) / 45.0));
}

std::vector<float> drawn(std::size_t count, std::uint64_t stream, double size) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(size * (2 * unit(philox(stream, i, 0).word[0]) - 1));
  return values;
}

struct Law {
  std::string name;
  optim::Formula formula;
  double lr;
  Published published;
  double tolerance = 1e-6;
  bool has_ratios() const { return !is_muon(); }
  bool is_muon() const { return std::holds_alternative<optim::Muon>(formula); }
};

bool is_weight(const nn::Tensor& tensor) {
  return tensor.role == nn::Role::conv_weight || tensor.role == nn::Role::linear_weight;
}

class Run {
 public:
  Run(Backend& backend, const nn::Network& network, const Law& law)
      : backend_(backend),
        network_(network),
        law_(law),
        parameters_(backend.make_parameters(network, Precision::fp32)),
        rule_{.formula = law.formula, .weight_decay = {}} {
    if (optim::has_second_moments(law.formula)) parameters_->start_second_moments();
    for (std::size_t s = 0; s < layout().learned_slices; ++s) begin(s);
    for (std::size_t s = layout().learned_slices; s < layout().slices.size(); ++s) {
      rule_.weight_decay.push_back(0);
      rule_.adaptive.push_back(0);
      rule_.rate.push_back(1);
    }
  }

  void step(int t) {
    const optim::StepScalars scalars{.lr = rate_at(t, law_.lr),
                                     .steps_done = static_cast<std::uint64_t>(t)};
    for (std::size_t s = 0; s < tensors_.size(); ++s) {
      Tensor& x = tensors_[s];
      const double size = s == without_gradient_ ? 0 : 0.01 * std::pow(3.0, double(s % 5));
      const auto stream = static_cast<std::uint64_t>(1000 * (t + 1)) + s;
      const std::vector<float> gradient = drawn(x.w.size(), stream, size);
      parameters_->import_slice(Part::gradients, s, gradient);
      x.g.assign(gradient.begin(), gradient.end());
      x.t = t + 1;
      x.lr_before = x.lr;
      x.lr = double{scalars.lr} * double{rule_.rate[s]};
      law_.published(x);
    }
    // In two parts, as with buckets.
    const std::size_t middle = layout().learned_slices / 2;
    backend_.update(*parameters_, rule_, scalars, 0, middle);
    backend_.update(*parameters_, rule_, scalars, middle, layout().learned_slices);
  }

  void compare() const {
    for (std::size_t s = 0; s < tensors_.size(); ++s) {
      INFO(law_.name << ", " << layout().slices[s].tensor.name);
      const Values& want = tensors_[s].w;
      std::vector<float> got(want.size());
      parameters_->export_slice(Part::weights, s, got);
      Values apart(want.size());
      for (std::size_t i = 0; i < want.size(); ++i) apart[i] = got[i] - want[i];
      // A tensor without a gradient shrinks, and keeps the rounding of its larger values.
      CHECK(norm_of(apart) <= law_.tolerance * std::max(norm_of(want), tensors_[s].began));
    }
    Values ratios;
    for (const Tensor& x : tensors_)
      if (!x.skipped) ratios.push_back(x.trust);
    std::sort(ratios.begin(), ratios.end());
    const auto found = parameters_->trust_ratios();
    REQUIRE(found.has_value() == law_.has_ratios());
    if (!found) return;
    CHECK(found->smallest == Approx(ratios.front()).epsilon(1e-5));
    CHECK(found->median == Approx(ratios[(ratios.size() - 1) / 2]).epsilon(1e-5));
    CHECK(found->largest == Approx(ratios.back()).epsilon(1e-5));
  }

 private:
  const nn::ArenaLayout& layout() const { return parameters_->layout(); }
  void begin(std::size_t s) {
    const nn::Tensor& tensor = layout().slices[s].tensor;
    const bool filter = tensor.role == nn::Role::conv_weight;
    const bool adapts = law_.is_muon() ? filter && !reads_image(tensor) : is_weight(tensor);
    if (filter && ++filters_ == 2) without_gradient_ = s;
    rule_.adaptive.push_back(adapts ? 1.f : 0.f);
    rule_.weight_decay.push_back(is_weight(tensor) ? static_cast<float>(decay_of_weights) : 0.f);
    rule_.rate.push_back(nn::in_head(tensor.role) ? 1.f : 0.25f);
    const std::vector<float> weights = drawn(tensor.count(), s, filter && filters_ == 1 ? 0 : 0.5);
    parameters_->import_slice(Part::weights, s, weights);
    tensors_.push_back({.w = {weights.begin(), weights.end()},
                        .g = {},
                        .m = Values(weights.size()),
                        .v = Values(weights.size()),
                        .skipped = !adapts,
                        .rows = tensor.shape.front(),
                        .decay = double{rule_.weight_decay.back()},
                        .began = norm_of({weights.begin(), weights.end()})});
  }

  bool reads_image(const nn::Tensor& tensor) const {
    return network_.nodes[network_.nodes[tensor.node].inputs[0]].op == nn::Op::input;
  }

  Backend& backend_;
  const nn::Network& network_;
  const Law& law_;
  std::unique_ptr<Parameters> parameters_;
  optim::UpdateRule rule_;
  std::vector<Tensor> tensors_;
  std::size_t filters_ = 0, without_gradient_ = 0;
};

std::vector<Law> all_laws() {
  using enum optim::LarsMomentum;
  const double m = 0.9f, eta = 0.01f, beta2 = 0.99f, epsilon = 1e-6f;
  const auto lars = [](optim::LarsMomentum form, bool nesterov = false) {
    return optim::Lars{.momentum = 0.9f, .nesterov = nesterov, .coefficient = 0.01f, .form = form};
  };
  const optim::Muon published{.momentum = 0.6f, .rest_momentum = 0.85f};
  const optim::Muon short_one{.momentum = 0.95f, .nesterov = false, .iterations = 3};
  return {
      {"LARS, inside", lars(inside), 2, [=](Tensor& x) { lars_inside(x, m, eta, false); }},
      {"LARS, Nesterov", lars(inside, true), 2, [=](Tensor& x) { lars_inside(x, m, eta, true); }},
      {"LARS, corrected", lars(corrected), 2, [=](Tensor& x) { lars_corrected(x, m, eta); }},
      {"LARS, outside", lars(outside), 2, [=](Tensor& x) { lars_outside(x, m, eta); }},
      {"LAMB", optim::Lamb{.momentum = 0.9f, .beta2 = 0.99f}, 0.02,
       [=](Tensor& x) { lamb(x, m, beta2, epsilon); }},
      {"Muon", published, 0.24, [=](Tensor& x) { muon(x, published); }, 1e-5},
      {"Muon, 3 iterations", short_one, 0.24, [=](Tensor& x) { muon(x, short_one); }, 1e-5},
  };
}

}  // namespace

std::vector<double> newton_schulz(const std::vector<double>& matrix, std::size_t rows,
                                  int iterations) {
  const std::size_t columns = matrix.size() / rows;
  const bool upright = rows <= columns;
  const std::size_t height = std::min(rows, columns), width = std::max(rows, columns);
  const auto place = [&](std::size_t r, std::size_t c) {
    return upright ? r * columns + c : c * columns + r;
  };
  Values x(matrix.size()), next(matrix.size());
  for (std::size_t r = 0; r < height; ++r)
    for (std::size_t c = 0; c < width; ++c) x[r * width + c] = matrix[place(r, c)];
  Values square(height * height), by(height * height);
  for (int step = 0; step < iterations; ++step) {
    std::fill(square.begin(), square.end(), 0);
    for (std::size_t r = 0; r < height; ++r)
      for (std::size_t k = 0; k < height; ++k)
        for (std::size_t c = 0; c < width; ++c)
          square[r * height + k] += x[r * width + c] * x[k * width + c];
    for (std::size_t i = 0; i < by.size(); ++i) by[i] = -4.7750 * square[i];
    for (std::size_t r = 0; r < height; ++r)
      for (std::size_t k = 0; k < height; ++k)
        for (std::size_t c = 0; c < height; ++c)
          by[r * height + c] += 2.0315 * square[r * height + k] * square[k * height + c];
    for (std::size_t i = 0; i < x.size(); ++i) next[i] = 3.4445 * x[i];
    for (std::size_t r = 0; r < height; ++r)
      for (std::size_t k = 0; k < height; ++k)
        for (std::size_t c = 0; c < width; ++c)
          next[r * width + c] += by[r * height + k] * x[k * width + c];
    std::swap(x, next);
  }
  Values found(matrix.size());
  for (std::size_t r = 0; r < height; ++r)
    for (std::size_t c = 0; c < width; ++c) found[place(r, c)] = x[r * width + c];
  return found;
}

void check_rules(Backend& backend, const nn::Network& network, int until) {
  for (const Law& law : all_laws()) {
    Run run(backend, network, law);
    for (int t = 0; t < until; ++t) run.step(t);
    run.compare();
  }
}

}  // namespace lockstep::test
