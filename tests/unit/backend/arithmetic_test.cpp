// Compares the formulas that the GPU's kernels are made of with what the CPU backend computes.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/backend/batch_norm.hpp"
#include "lockstep/backend/cross_entropy.hpp"
#include "lockstep/backend/logits.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/optim/average.hpp"
#include "lockstep/optim/clip.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/optim/loss_scale.hpp"
#include "lockstep/optim/sgd.hpp"
#include "ports/cpu/kernels/kernels.hpp"

using namespace lockstep;
using namespace lockstep::backend;
namespace a = lockstep::backend::arithmetic;

namespace {

float drawn(std::uint64_t i, float scale = 1) {
  return scale * (2 * unit(philox(77, i, 0).word[0]) - 1);
}

/// 64 of them, of which i is drawn(first + i).
std::vector<float> drawn_from(std::uint64_t first) {
  std::vector<float> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = drawn(first + i);
  return values;
}

constexpr float infinite = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("a pixel is normalised as on the CPU", "[arithmetic]") {
  const a::PixelScale by = a::pixel_scale(0.485, 0.229);
  std::vector<std::uint8_t> pixels(256);
  for (std::size_t i = 0; i < 256; ++i) pixels[i] = static_cast<std::uint8_t>(i);
  const std::vector<float> scale(48, by.scale), shift(48, by.shift);
  std::vector<float> want(256);
  cpu::kernels(cpu::Storage::fp32)
      .normalise(pixels.data(), 256, scale.data(), shift.data(), want.data());
  for (std::size_t i = 0; i < 256; ++i) {
    CHECK(a::normalised(pixels[i], by) == Approx(want[i]).margin(1e-6));
    CHECK(want[i] == Approx((static_cast<double>(i) / 255 - 0.485) / 0.229).margin(1e-5));
  }
}

TEST_CASE("one update is the CPU's, with and without Nesterov", "[arithmetic]") {
  for (const bool nesterov : {false, true}) {
    std::vector<float> gradient = drawn_from(0), weight = drawn_from(100),
                       velocity = drawn_from(200);
    std::vector<float> want_weight = weight, want_velocity = velocity;
    cpu::float_kernels().sgd({0.1f, 0.9f, 1e-4f, nesterov}, 64, gradient.data(), want_weight.data(),
                             want_velocity.data());
    for (std::size_t i = 0; i < 64; ++i) {
      optim::sgd({0.1f, 0.9f, 1e-4f, nesterov}, gradient[i], weight[i], velocity[i]);
      CHECK(weight[i] == Approx(want_weight[i]).margin(1e-6));
      CHECK(velocity[i] == Approx(want_velocity[i]).margin(1e-6));
    }
  }
}

TEST_CASE("one step of the average is the CPU's and leaves equal values equal", "[arithmetic]") {
  std::vector<float> weight(64), average(64);
  for (std::size_t i = 0; i < 64; ++i) {
    weight[i] = drawn(i);
    average[i] = i % 8 ? drawn(100 + i) : weight[i];
  }
  std::vector<float> want = average;
  cpu::float_kernels().average(0.1f, 64, weight.data(), want.data());
  for (std::size_t i = 0; i < 64; ++i) {
    const float got = optim::averaged(average[i], weight[i], 0.1f);
    CHECK(got == Approx(want[i]).margin(1e-7));
    CHECK(got == Approx(0.9 * average[i] + 0.1 * weight[i]).margin(1e-7));
    if (average[i] == weight[i]) CHECK(got == average[i]);
  }
}

TEST_CASE("gradients are clipped by limit / (norm + 1e-6), and only down", "[arithmetic]") {
  CHECK(optim::clip_factor(4, 1) == Approx(1 / (4 + 1e-6)).epsilon(1e-7));
  CHECK(optim::clip_factor(1, 1) == Approx(1 / (1 + 1e-6)).epsilon(1e-7));
  CHECK(optim::clip_factor(0.9, 1) == 1);
  CHECK(optim::clip_factor(0, 1) == 1);
  CHECK(optim::clip_factor(infinite, 1) == 0);
  CHECK(optim::clip_factor(not_a_number, 1) == 1);
}

TEST_CASE("one LARS update is the CPU's, with and without Nesterov", "[arithmetic]") {
  for (const bool nesterov : {false, true}) {
    std::vector<float> gradient = drawn_from(0), weight = drawn_from(100),
                       velocity = drawn_from(200);
    std::vector<float> want_weight = weight, want_velocity = velocity;
    cpu::float_kernels().lars({0.1f, 0.9f, 1e-2f, nesterov}, 64, gradient.data(),
                              want_weight.data(), want_velocity.data());
    for (std::size_t i = 0; i < 64; ++i) {
      const double step = 0.1 * (gradient[i] + 1e-2 * weight[i]), v = 0.9 * velocity[i] + step;
      const double w = weight[i] - (nesterov ? 0.9 * v + step : v);
      optim::lars({0.1f, 0.9f, 1e-2f, nesterov}, gradient[i], weight[i], velocity[i]);
      CHECK(weight[i] == Approx(want_weight[i]).margin(1e-6));
      CHECK(velocity[i] == Approx(want_velocity[i]).margin(1e-6));
      CHECK(weight[i] == Approx(w).margin(1e-6));
      CHECK(velocity[i] == Approx(v).margin(1e-6));
    }
  }
}

TEST_CASE("the trust ratio is 1 where a norm is 0, else that of the norms", "[arithmetic]") {
  CHECK(optim::trust_ratio(0.001f, 0, 1e-4f, 5, 2) == Approx(0.001 * 5 / (2 + 1e-4 * 5)));
  CHECK(optim::trust_ratio(0.001f, 0.5f, 0, 5, 2) == Approx(0.001 * 5 / 2.5));
  CHECK(optim::trust_ratio(0.001f, 0, 1e-4f, 0, 2) == 1);
  CHECK(optim::trust_ratio(0.001f, 0, 1e-4f, 5, 0) == 1);
  CHECK(optim::trust_ratio(0.001f, 0, 1e-4f, 5, not_a_number) == 1);
}

TEST_CASE("loss, places and gradient of a row are the CPU's", "[arithmetic]") {
  constexpr std::int32_t classes = 11;
  for (std::uint64_t row = 0; row < 40; ++row) {
    std::vector<float> logits(classes), want(classes);
    for (std::size_t k = 0; k < logits.size(); ++k) logits[k] = drawn(row * 100 + k, 8);
    if (row % 4 == 0) logits[3] = logits[5];  // a tie
    const data::Target target{static_cast<std::int32_t>(row % classes), 5, row % 3 ? 0.7f : 1.f};
    const float smoothing = row % 2 ? 0.1f : 0.f;
    Metrics metrics;
    row_loss({.smoothing = smoothing}, logits, target, nullptr, 0.5f, metrics, want.data());

    double highest = -1e30, sum = 0, all = 0;
    for (const float v : logits) highest = std::max(highest, static_cast<double>(v));
    std::size_t better = 0;
    for (std::int32_t k = 0; k < classes; ++k) {
      const float v = logits[static_cast<std::size_t>(k)];
      sum += std::exp(v - highest);
      all += v;
      better += a::outranks(k, v, target.label_a, logits[row % classes]) ? 1 : 0;
    }
    const double log_sum = highest + std::log(sum);
    const a::Wanted wanted =
        a::wanted(target.label_a, target.label_b, target.mix, smoothing, classes);
    CHECK(a::cross_entropy(wanted, log_sum, logits[row % classes], logits[5], all) ==
          Approx(metrics.loss).epsilon(1e-6));
    CHECK(metrics.top1 == (better < 1 ? 1u : 0u));
    CHECK(metrics.top5 == (better < 5 ? 1u : 0u));
    for (std::int32_t k = 0; k < classes; ++k)
      CHECK(a::logit_gradient(wanted, k, logits[static_cast<std::size_t>(k)], log_sum, 0.5) ==
            Approx(want[static_cast<std::size_t>(k)]).margin(1e-6));
  }
}

TEST_CASE("a NaN among the logits is never right and makes the loss one", "[arithmetic]") {
  CHECK(a::outranks(1, 0.f, 0, not_a_number));
  CHECK(a::outranks(1, not_a_number, 0, 0.f));
  const a::Wanted wanted = a::wanted(0, 0, 1.f, 0.f, 2);
  CHECK(std::isnan(a::cross_entropy(wanted, std::nan(""), 0, 0, 0)));
}

TEST_CASE("moments do not depend on the pivot, however large the mean", "[arithmetic]") {
  for (const double mean : {0.0, 3.0, 1e4}) {
    std::vector<double> x;
    for (std::uint64_t i = 0; i < 500; ++i) x.push_back(mean + static_cast<double>(drawn(i)));
    double want_mean = 0, want_variance = 0;
    for (const double v : x) want_mean += v / 500;
    for (const double v : x) want_variance += (v - want_mean) * (v - want_mean) / 500;
    double sum = 0, squares = 0;
    for (const double v : x) {
      sum += v - x[0];
      squares += (v - x[0]) * (v - x[0]);
    }
    const a::Moments got = a::moments(sum, squares, 500, x[0]);
    CHECK(got.mean == Approx(want_mean).epsilon(1e-12));
    CHECK(got.variance == Approx(want_variance).epsilon(1e-9));
  }
  CHECK(a::moments(0, -1e-12, 4, 0).variance == 0);
  CHECK(a::unbiased(2, 5) == Approx(2.5));
  CHECK(a::unbiased(0, 1) == 0);
}

TEST_CASE("batch norm's gradient is the central difference", "[arithmetic]") {
  constexpr std::size_t count = 7;
  std::vector<double> x(count), weight(count);  // the loss is the weighted sum of the outputs
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = drawn(i);
    weight[i] = drawn(50 + i);
  }
  const float gamma = 1.3f, beta = -0.2f, epsilon = 1e-5f;
  const auto channel = [&] {
    double sum = 0, squares = 0;
    for (const double v : x) {
      sum += v;
      squares += v * v;
    }
    const a::Moments m = a::moments(sum, squares, count, 0);
    return a::norm_channel(m.mean, m.variance, gamma, beta, epsilon);
  };
  const auto loss = [&] {
    double sum = 0, squares = 0, total = 0;
    for (const double v : x) {
      sum += v;
      squares += v * v;
    }
    const a::Moments m = a::moments(sum, squares, count, 0);
    for (std::size_t i = 0; i < count; ++i)
      total += weight[i] * (gamma * (x[i] - m.mean) / std::sqrt(m.variance + epsilon) + beta);
    return total;
  };
  const a::NormChannel n = channel();
  double sum_g = 0, sum_gx = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum_g += weight[i];
    sum_gx += weight[i] * (x[i] - n.mean);
  }
  const a::NormGradient g = a::norm_gradient(sum_g, sum_gx, count, n.scale, n.inverse_deviation);
  for (std::size_t i = 0; i < count; ++i) {
    const double before = x[i], step = 1e-5;
    x[i] = before + step;
    const double above = loss();
    x[i] = before - step;
    const double below = loss();
    x[i] = before;
    const double dx = weight[i] * g.a + (x[i] - n.mean) * g.b + g.c;
    CHECK(dx == Approx((above - below) / (2 * step)).margin(1e-5));
  }
  CHECK(g.dbeta == Approx(sum_g).margin(1e-6));
}

TEST_CASE("running statistics of two micro-batches are those of two steps", "[arithmetic]") {
  const float momentum = 0.1f, running = 2;
  const double first = 5, second = -3;
  float share = a::kept_statistic(false, not_a_number, 1, momentum, first);
  share = a::kept_statistic(true, share, 1, momentum, second);
  const float kept = (1 - momentum) * (1 - momentum);
  const double one_by_one = 0.9 * (0.9 * running + 0.1 * first) + 0.1 * second;
  CHECK(a::running_statistic(kept, running, share) == Approx(one_by_one).epsilon(1e-6));
}

TEST_CASE("the loss scale halves at an overflow and doubles after a row of good steps",
          "[arithmetic]") {
  optim::LossScale s;
  CHECK(s.scale == 65536);
  s = optim::after_step(s, true);
  s = optim::after_step(s, true);
  CHECK(s == optim::LossScale{16384, 0, 2, 2});
  s = optim::after_step(s, false);
  CHECK(s == optim::LossScale{16384, 1, 0, 2});
  for (std::uint32_t i = 1; i < optim::growth_steps; ++i) s = optim::after_step(s, false);
  CHECK(s == optim::LossScale{32768, 0, 0, 2});
  for (int i = 0; i < 40; ++i) s = optim::after_step(s, true);
  CHECK(s.scale == 1);
  s.scale = optim::largest_scale;
  for (std::uint32_t i = 0; i < optim::growth_steps; ++i) s = optim::after_step(s, false);
  CHECK(s.scale == optim::largest_scale);
}

TEST_CASE("overflow is an infinity or NaN, nothing else", "[arithmetic]") {
  CHECK(a::overflowed(infinite));
  CHECK(a::overflowed(-infinite));
  CHECK(a::overflowed(not_a_number));
  for (const float v : {0.f, -0.f, 1e-45f, 3.4028235e38f, -3.4028235e38f})
    CHECK_FALSE(a::overflowed(v));
}
