// Batch norm's kernels compared with plain double loops, in every storage and on odd shapes.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/emulated/kernels/norm_fixture.hpp"

using namespace lockstep;
using namespace lockstep::cuda;
using namespace lockstep::test;

namespace {

/// One row; channel counts that no warp or 16-byte access divides; several blocks along rows and
/// channels.
const Matrix shapes[] = {{1, 8}, {3, 24}, {130, 40}, {21, 264}, {4500, 8}};

/// Mean and variance of each channel, in double.
struct Moments {
  Moments(const std::vector<double>& x, const Matrix& shape)
      : mean(static_cast<std::size_t>(shape.channels)), variance(mean) {
    const std::size_t channels = mean.size();
    const auto count = static_cast<double>(shape.rows);
    for (std::size_t i = 0; i < x.size(); ++i) mean[i % channels] += x[i] / count;
    for (std::size_t i = 0; i < x.size(); ++i)
      variance[i % channels] += std::pow(x[i] - mean[i % channels], 2) / count;
  }
  double inverse(std::size_t c) const { return 1 / std::sqrt(variance[c] + double{epsilon}); }
  std::vector<double> mean, variance;
};

/// For Mask::from_bits, from its definition.
std::vector<std::uint8_t> mask_of(const std::vector<double>& y, Storage storage) {
  const std::size_t width = 16 / bytes_of(storage);
  std::vector<std::uint8_t> bytes(y.size() / width);
  for (std::size_t i = 0; i < y.size(); ++i)
    if (y[i] > 0) bytes[i / width] |= static_cast<std::uint8_t>(1u << i % width);
  return bytes;
}

}  // namespace

TEST_CASE("a batch's mean and deviation, every storage", "[kernel]") {
  for (const Storage storage : all_storages)
    for (const Matrix& shape : shapes) {
      INFO(to_string(storage) << ", " << shape.rows << " x " << shape.channels);
      const std::vector<double> x = input(shape, storage);
      const Values stored(storage, x);
      const Outputs got = in_every_order([&](cudaStream_t stream) {
        Norm norm(shape);
        norm_statistics(stored.data(), shape, storage, norm.parameters(), norm.per_channel(),
                        norm.scratch(), stream);
        return Outputs{norm.numbers.read(), norm.gamma.read(), norm.beta.read()};
      });
      const Moments want(x, shape);
      const std::size_t channels = want.mean.size();
      const auto array = [&](std::size_t k) {
        return std::span(got[0]).subspan(k * channels, channels);
      };
      check_near(array(0), want.mean, 1e-6, "mean");
      check_near(array(4), want.variance, 2e-5, "variance");
      for (std::size_t c = 0; c < channels; ++c) {
        const double scale = got[1][c] * want.inverse(c);
        CHECK(array(1)[c] == Approx(want.inverse(c)).epsilon(2e-5));
        CHECK(array(2)[c] == Approx(scale).epsilon(2e-5).margin(1e-9));
        CHECK(
            array(3)[c] ==
            Approx(got[2][c] - want.mean[c] * scale).epsilon(2e-5).margin(1e-4 * std::abs(scale)));
      }
    }
}

TEST_CASE("a channel whose mean is large compared with its deviation keeps its variance",
          "[kernel]") {
  const Matrix shape{3000, 8};
  std::vector<double> x = some_values(shape.count(), 6);
  for (double& v : x) v = 1000 + 0.01 * v;
  x = rounded(Storage::fp32, x);
  const Values stored(Storage::fp32, x);
  Norm norm(shape);
  const CudaStream stream;
  norm_statistics(stored.data(), shape, Storage::fp32, norm.parameters(), norm.per_channel(),
                  norm.scratch(), stream.get());
  const Moments want(x, shape);
  const std::vector<double> numbers = norm.numbers.read();
  check_near(std::span(numbers).subspan(4 * 8, 8), want.variance, 1e-4, "variance");
}

TEST_CASE("the running statistics give the numbers of evaluation", "[kernel]") {
  const Matrix shape{2, 264};
  Norm norm(shape);
  const CudaStream stream;
  norm_running(shape, norm.parameters(), norm.per_channel(), stream.get());
  const auto mean = norm.running_mean.read(), var = norm.running_var.read(),
             gamma = norm.gamma.read(), beta = norm.beta.read(), got = norm.numbers.read();
  for (std::size_t c = 0; c < norm.channels; ++c) {
    const double inverse = 1 / std::sqrt(var[c] + double{epsilon});
    CHECK(got[c] == mean[c]);
    CHECK(got[2 * norm.channels + c] == Approx(gamma[c] * inverse).epsilon(1e-6));
    CHECK(got[3 * norm.channels + c] ==
          Approx(beta[c] - mean[c] * gamma[c] * inverse).margin(1e-6));
  }
}

TEST_CASE("scale and shift, with and without a sum and a ReLU; a NaN stays a NaN", "[kernel]") {
  for (const Storage storage : all_storages)
    for (const Matrix& shape : shapes)
      for (const bool relu : {false, true})
        for (const int skips : {0, 1, 2}) {  // the last: a skip's batch norm is applied, too
          INFO(to_string(storage) << ", " << shape.rows << " x " << shape.channels
                                  << (relu ? ", ReLU" : "") << ", " << skips);
          std::vector<double> x = input(shape, storage);
          x.back() = NAN;
          const std::vector<double> s = rounded(storage, some_values(shape.count(), 7));
          const Values stored(storage, x), skip(storage, s);
          Norm norm(shape);
          const std::vector<double> numbers =
              rounded(Storage::fp32, some_values(2 * norm.channels, 8));
          Values of_skip(Storage::fp32, numbers);
          const Outputs got = in_every_order([&](cudaStream_t stream) {
            norm_running(shape, norm.parameters(), norm.per_channel(), stream);
            Values y(storage, shape.count());
            std::vector<std::uint8_t> mask(mask_bytes(shape, storage), 0xaa);
            const bool masked = skips > 0 && relu;
            NormApply op{stored.data(), skips > 0 ? skip.data() : nullptr, relu,
                         y.data(),      masked ? mask.data() : nullptr,    relu};
            if (skips == 2) op.skip_scale = of_skip.floats();
            if (skips == 2) op.skip_shift = of_skip.floats() + norm.channels;
            norm_apply(op, shape, storage, norm.per_channel(), stream);
            if (masked) CHECK(mask == mask_of(y.read(), storage));
            return Outputs{y.read()};
          });
          const std::vector<double> n = norm.numbers.read();
          std::vector<double> want(x.size());
          for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t c = i % norm.channels;
            want[i] = x[i] * n[2 * norm.channels + c] + n[3 * norm.channels + c];
            if (skips == 1) want[i] += s[i];
            if (skips == 2) want[i] += s[i] * numbers[c] + numbers[norm.channels + c];
            if (relu && want[i] < 0) want[i] = 0;
          }
          check_near(got[0], want, precision_of(storage) + 1e-6, "y");
        }
}

TEST_CASE("a join's mask is of the values as stored: where rounding made 0, nothing passes",
          "[kernel]") {
  const Matrix shape{5, 8};
  for (const Storage storage : all_storages) {
    INFO(to_string(storage));
    const std::vector<double> zeros(shape.count());
    const Values x(storage, zeros), skip(storage, zeros);
    Values y(storage, shape.count());
    Norm norm(shape);
    const NormChannels n = norm.per_channel();
    const float shifts[] = {1e-9f, -1e-9f, 0.f, -0.f, 1e-40f, 6e-8f, INFINITY, NAN};
    std::fill_n(n.scale, 8, 1.f);
    std::copy_n(shifts, 8, n.shift);
    std::vector<std::uint8_t> mask(mask_bytes(shape, storage), 0xaa);
    const CudaStream stream;
    norm_apply({x.data(), skip.data(), true, y.data(), mask.data()}, shape, storage, n,
               stream.get());
    CHECK(mask == mask_of(y.read(), storage));
    CHECK((mask[0] & 1) == (storage == Storage::fp16 ? 0 : 1));
  }
}

namespace {

struct Asked {
  Mask mask;
  bool two, keep, accumulate;
};

/// What norm's backward should write, from its definition: x' = (x - mean) / deviation.
struct Wanted {
  std::vector<double> g, dx, dgamma, dbeta, mean_share, var_share;
};

Wanted backward(const Asked& asked, const Matrix& shape, const std::vector<double>& x,
                const std::vector<double>& y, std::vector<double> g,
                const std::vector<double>& before, const std::vector<double>& gamma,
                const std::vector<double>& beta, double share) {
  const Moments moments(x, shape);
  const std::size_t channels = gamma.size();
  const auto count = static_cast<double>(shape.rows);
  const auto normalised = [&](std::size_t i) {
    const std::size_t c = i % channels;
    return (x[i] - moments.mean[c]) * moments.inverse(c);
  };
  Wanted want;
  want.dgamma.resize(channels);
  want.dbeta.resize(channels);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    const double out = asked.mask == Mask::from_bits ? y[i] : normalised(i) * gamma[c] + beta[c];
    if (asked.mask != Mask::none && !(out > 0)) g[i] = 0;
    want.dgamma[c] += g[i] * normalised(i);
    want.dbeta[c] += g[i];
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    want.dx.push_back(gamma[c] * moments.inverse(c) *
                      (g[i] - want.dbeta[c] / count - normalised(i) * want.dgamma[c] / count));
  }
  want.g = std::move(g);
  const double fade = asked.accumulate ? 1 - double{momentum} : 0;
  for (std::size_t c = 0; c < channels; ++c) {
    if (asked.accumulate) want.dgamma[c] += before[c];
    if (asked.accumulate) want.dbeta[c] += before[channels + c];
    const double unbiased = moments.variance[c] * count / (count > 2 ? count - 1 : 1);
    want.mean_share.push_back(fade * before[2 * channels + c] +
                              share * double{momentum} * moments.mean[c]);
    want.var_share.push_back(fade * before[3 * channels + c] + share * double{momentum} * unbiased);
  }
  return want;
}

void check_backward(const Asked& asked, const Matrix& shape, Storage storage) {
  INFO(to_string(storage) << ", " << shape.rows << " x " << shape.channels << ", mask "
                          << static_cast<int>(asked.mask) << (asked.two ? ", two gradients" : "")
                          << (asked.keep ? ", kept" : "") << (asked.accumulate ? ", added" : ""));
  const std::vector<double> x = input(shape, storage);
  std::vector<double> y = rounded(storage, some_values(shape.count(), 8));
  for (std::size_t i = 0; i < y.size(); i += 3) y[i] = i % 2 == 0 ? 0 : NAN;
  const std::vector<double> one = rounded(storage, some_values(shape.count(), 9));
  const std::vector<double> other = rounded(storage, some_values(shape.count(), 10));
  const std::vector<std::uint8_t> bits = mask_of(y, storage);
  const float share = 0.25f;
  DeviceScalars scalars;
  scalars.step.statistics_share = share;
  std::vector<double> before, gamma, beta;
  const Outputs got = in_every_order([&](cudaStream_t stream) {
    Norm norm(shape);
    before = norm.gradients.read(), gamma = norm.gamma.read(), beta = norm.beta.read();
    Values stored(storage, x), first(storage, one), second(storage, other);
    norm_statistics(stored.data(), shape, storage, norm.parameters(), norm.per_channel(),
                    norm.scratch(), stream);
    NormBackward op{};
    op.first = first.data();
    op.second = asked.two ? second.data() : nullptr;
    op.x = stored.data();
    op.mask = asked.mask;
    op.down = asked.two;
    op.bits = asked.mask == Mask::from_bits ? bits.data() : nullptr;
    op.g = asked.keep ? first.data() : nullptr;  // as in a program: in place of the first one
    norm_gradients(op, shape, storage, norm.parameters(), norm.per_channel(), asked.accumulate,
                   &scalars, norm.scratch(), stream);
    norm_input_gradient(op, shape, storage, norm.per_channel(), stored.data(), stream);
    return Outputs{stored.read(), norm.gradients.read(), first.read()};
  });
  std::vector<double> g = one;
  for (std::size_t i = 0; asked.two && i < g.size(); ++i) g[i] += other[i];
  const Wanted want = backward(asked, shape, x, y, g, before, gamma, beta, double{share});
  const double stored = precision_of(storage) + 2e-5;
  const std::size_t channels = gamma.size();
  const auto array = [&](std::size_t k) {
    return std::span(got[1]).subspan(k * channels, channels);
  };
  // One row normalises to nothing; its gradient is rounding.
  if (shape.rows > 1) check_near(got[0], want.dx, (asked.keep ? 2 : 1) * stored, "dx");
  check_near(array(0), want.dgamma, 5e-5, "dgamma");
  check_near(array(1), want.dbeta, 5e-6, "dbeta");
  check_near(array(2), want.mean_share, 2e-6, "mean's share");
  check_near(array(3), want.var_share, 2e-5, "variance's share");
  if (asked.keep) check_near(got[2], want.g, precision_of(storage) + 1e-6, "g");
}

}  // namespace

TEST_CASE("batch norm's gradients, every mask and storage", "[kernel]") {
  for (const Storage storage : all_storages)
    for (const Matrix& shape : shapes)
      for (const Mask mask : {Mask::none, Mask::from_x, Mask::from_bits})
        for (const bool two : {false, true})
          check_backward({mask, two, mask == Mask::from_bits, two == (mask == Mask::none)}, shape,
                         storage);
}

TEST_CASE("a NaN spoils only its own channel's statistics", "[kernel]") {
  const Matrix shape{50, 16};
  for (const Storage storage : all_storages) {
    std::vector<double> x = input(shape, storage);
    x[20 * 16 + 5] = NAN;
    const Values stored(storage, x);
    Norm norm(shape);
    const CudaStream stream;
    norm_statistics(stored.data(), shape, storage, norm.parameters(), norm.per_channel(),
                    norm.scratch(), stream.get());
    const std::vector<double> numbers = norm.numbers.read();
    for (std::size_t c = 0; c < 16; ++c) {
      INFO("channel " << c);
      CHECK(std::isnan(numbers[c]) == (c == 5));
      CHECK(std::isnan(numbers[2 * 16 + c]) == (c == 5));
    }
  }
}

TEST_CASE("from a convolution's sums come the same numbers and gradients as from the values",
          "[kernel]") {
  for (const Matrix& shape : shapes) {
    INFO(shape.rows << " x " << shape.channels);
    const Storage storage = Storage::fp16;
    const std::vector<double> x = input(shape, storage);
    const std::vector<double> g = rounded(storage, some_values(shape.count(), 9));
    const Values stored(storage, x), gradient(storage, g);
    const Moments moments(x, shape);
    const auto channels = static_cast<std::size_t>(shape.channels);
    std::vector<double> forward(2 * channels), backward(2 * channels);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i % channels;
      forward[c] += x[i];
      forward[channels + c] += x[i] * x[i];
      backward[c] += g[i] * (x[i] - moments.mean[c]) * moments.inverse(c);
      backward[channels + c] += g[i];
    }
    DeviceScalars scalars;
    scalars.step.statistics_share = 0.25f;
    const NormBackward op{gradient.data(), nullptr, stored.data(), Mask::none, nullptr, nullptr};
    for (const bool accumulate : {false, true}) {
      const auto outputs = [&](bool from_sums) {
        return in_every_order([&](cudaStream_t stream) {
          Norm norm(shape);
          Values sums(Storage::fp32, forward), gradient_sums(Storage::fp32, backward);
          const NormParameters p = norm.parameters();
          const NormChannels n = norm.per_channel();
          if (from_sums) {
            norm_statistics_of_sums(sums.floats(), shape, p, n, stream);
            norm_gradients_of_sums(gradient_sums.floats(), shape, p, n, accumulate, &scalars,
                                   stream);
          } else {
            norm_statistics(stored.data(), shape, storage, p, n, norm.scratch(), stream);
            norm_gradients(op, shape, storage, p, n, accumulate, &scalars, norm.scratch(), stream);
          }
          const std::vector<double> numbers = norm.numbers.read();
          std::vector<double> halves;
          for (std::size_t c = 0; c < channels; ++c) {
            halves.push_back(static_cast<double>(__half2float(n.half_scale[c])));
            halves.push_back(static_cast<double>(__half2float(n.half_shift[c])));
          }
          return Outputs{{numbers.begin(), numbers.begin() + 8 * shape.channels},
                         norm.gradients.read(),
                         halves};
        });
      };
      // One row has no deviation: only rounding remains, which gamma / deviation magnifies.
      const double tolerance = shape.rows > 1 ? 1e-4 : 2e-2;
      const Outputs got = outputs(true), want = outputs(false);
      for (std::size_t k = 0; k < 8; ++k)
        check_near(std::span(got[0]).subspan(k * channels, channels),
                   std::span(want[0]).subspan(k * channels, channels), tolerance,
                   "array " + std::to_string(k));
      check_near(got[1], want[1], tolerance, "gradients");
      check_near(got[2], want[2], precision_of(storage) + tolerance, "halves");
    }
  }
}
