// Pooling and option A's shortcut, compared with plain double loops.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <tuple>

#include "ports/cuda/kernels/divider.cuh"
#include "tests/emulated/fixture.hpp"

using namespace lockstep;
using namespace lockstep::cuda;
using namespace lockstep::test;

namespace {

Window window(std::size_t batch, int channels, int height, int width, int kernel, int stride,
              int padding) {
  const auto out = [&](int size) { return (size + 2 * padding - kernel) / stride + 1; };
  return {batch, channels, height, width, out(height), out(width), kernel, stride, padding};
}

const Window windows[] = {
    window(2, 16, 11, 7, 3, 2, 1), window(3, 8, 8, 8, 3, 2, 1),  window(1, 8, 1, 2, 3, 2, 1),
    window(1, 16, 7, 12, 3, 2, 0), window(1, 24, 5, 5, 2, 2, 0), window(1, 8, 6, 4, 2, 2, 0),
    window(2, 8, 1, 1, 3, 1, 1),   window(1, 8, 9, 6, 3, 1, 1),  window(1, 8, 11, 8, 2, 3, 0),
    window(2, 8, 7, 9, 3, 3, 1),   window(1, 16, 6, 6, 3, 3, 0), window(2, 24, 7, 9, 5, 2, 2),
    window(1, 8, 9, 17, 15, 1, 7)};

std::size_t inputs(const Window& w) {
  return w.batch * static_cast<std::size_t>(w.height * w.width * w.channels);
}
std::size_t outputs(const Window& w, int channels) {
  return w.batch * static_cast<std::size_t>(w.out_height * w.out_width * channels);
}
std::size_t at(std::size_t n, int y, int x, int c, int height, int width, int channels) {
  return ((n * static_cast<std::size_t>(height) + static_cast<std::size_t>(y)) *
              static_cast<std::size_t>(width) +
          static_cast<std::size_t>(x)) *
             static_cast<std::size_t>(channels) +
         static_cast<std::size_t>(c);
}

/// Which input each output of max pooling is: the first of equal ones, and a NaN before all others.
std::vector<std::size_t> chosen(const Window& w, const std::vector<double>& x) {
  std::vector<std::size_t> sources;
  for (std::size_t n = 0; n < w.batch; ++n)
    for (int y = 0; y < w.out_height; ++y)
      for (int column = 0; column < w.out_width; ++column)
        for (int c = 0; c < w.channels; ++c) {
          std::size_t best = x.size();
          for (int k = 0; k < w.kernel * w.kernel; ++k) {
            const int iy = y * w.stride - w.padding + k / w.kernel;
            const int ix = column * w.stride - w.padding + k % w.kernel;
            if (iy < 0 || ix < 0 || iy >= w.height || ix >= w.width) continue;
            const std::size_t i = at(n, iy, ix, c, w.height, w.width, w.channels);
            if (best == x.size() || x[i] > x[best] || std::isnan(x[i])) best = i;
          }
          sources.push_back(best);
        }
  return sources;
}

/// Only a few different numbers, so that some are equal.
std::vector<double> coarse(std::size_t count, std::uint64_t seed) {
  std::vector<double> values = some_values(count, seed);
  for (double& v : values) v = std::round(v * 4) / 4;
  return values;
}

}  // namespace

TEST_CASE("max pooling takes the largest, the first of equals, and lets a NaN through",
          "[kernel]") {
  for (const Storage storage : all_storages)
    for (const Window& w : windows) {
      INFO(to_string(storage) << ", " << w.height << " x " << w.width);
      std::vector<double> x = coarse(inputs(w), 1);
      if (x.size() > 100) x[x.size() / 2] = NAN;
      const Values stored(storage, x);
      const std::size_t count = outputs(w, w.channels);
      const Outputs got = in_every_order([&](cudaStream_t stream) {
        Values y(storage, count);
        std::vector<std::uint8_t> index(count, 255);
        max_pool(stored.data(), w, storage, y.data(), index.data(), stream);
        return Outputs{y.read(), {index.begin(), index.end()}};
      });
      const std::vector<std::size_t> sources = chosen(w, x);
      std::vector<double> want;
      for (const std::size_t i : sources) want.push_back(x[i]);
      check_near(got[0], want, 0, "y");
    }
}

TEST_CASE("max pooling's gradient goes where the largest was", "[kernel]") {
  for (const Storage storage : all_storages)
    for (const Window& w : windows)
      for (const bool two : {false, true}) {
        INFO(to_string(storage) << ", " << w.height << " x " << w.width << (two ? ", two" : ""));
        std::vector<double> x = coarse(inputs(w), 2);
        if (x.size() > 100) x[x.size() / 2] = NAN;
        const std::size_t count = outputs(w, w.channels);
        const std::vector<double> a = coarse(count, 3), b = coarse(count, 4);
        const Values stored(storage, x), first(storage, a), second(storage, b);
        const Outputs got = in_every_order([&](cudaStream_t stream) {
          Values y(storage, count), dx(storage, x.size());
          std::vector<std::uint8_t> index(count, 255);
          max_pool(stored.data(), w, storage, y.data(), index.data(), stream);
          max_pool_gradient(first.data(), two ? second.data() : nullptr, index.data(), w, storage,
                            dx.data(), stream);
          return Outputs{dx.read()};
        });
        const std::vector<std::size_t> sources = chosen(w, x);
        std::vector<double> want(x.size());
        for (std::size_t o = 0; o < count; ++o) want[sources[o]] += a[o] + (two ? b[o] : 0);
        check_near(got[0], want, 0, "dx");  // quarters: exact in every storage
      }
}

TEST_CASE("max pooling's gradient adds the windows in one order: the input's first place in each",
          "[kernel]") {
  for (const Window& w : windows) {
    INFO(w.height << " x " << w.width << ", kernel " << w.kernel << ", stride " << w.stride);
    const Storage storage = Storage::fp32;
    const std::vector<double> x = coarse(inputs(w), 2);
    const std::size_t count = outputs(w, w.channels);
    const std::vector<double> a = rounded(storage, some_values(count, 3));
    const Values stored(storage, x), first(storage, a);
    const Outputs got = in_every_order([&](cudaStream_t stream) {
      Values y(storage, count), dx(storage, x.size());
      std::vector<std::uint8_t> index(count, 255);
      max_pool(stored.data(), w, storage, y.data(), index.data(), stream);
      max_pool_gradient(first.data(), nullptr, index.data(), w, storage, dx.data(), stream);
      return Outputs{dx.read()};
    });
    // Outputs in reverse: an input is first in the last window that holds it.
    const std::vector<std::size_t> sources = chosen(w, x);
    std::vector<float> want(x.size());
    for (std::size_t o = count; o-- > 0;) want[sources[o]] += static_cast<float>(a[o]);
    for (std::size_t i = 0; i < want.size(); ++i)
      REQUIRE(got[0][i] == static_cast<double>(want[i]));
  }
}

TEST_CASE("a gradient that is not finite goes to the largest pixel of its window alone",
          "[kernel]") {
  for (const Storage storage : all_storages)
    for (const Window& w : windows) {
      INFO(to_string(storage) << ", " << w.height << " x " << w.width << ", kernel " << w.kernel);
      const std::vector<double> x = coarse(inputs(w), 2);
      const std::size_t count = outputs(w, w.channels), spoilt = count / 2;
      std::vector<double> a = coarse(count, 3);
      a[spoilt] = NAN;
      const Values stored(storage, x), first(storage, a);
      Values y(storage, count), dx(storage, x.size());
      std::vector<std::uint8_t> index(count, 255);
      const CudaStream stream;
      max_pool(stored.data(), w, storage, y.data(), index.data(), stream.get());
      max_pool_gradient(first.data(), nullptr, index.data(), w, storage, dx.data(), stream.get());
      const std::vector<double> got = dx.read();
      const std::size_t source = chosen(w, x)[spoilt];
      for (std::size_t i = 0; i < got.size(); ++i) REQUIRE(std::isnan(got[i]) == (i == source));
    }
}

TEST_CASE("a divider gives the quotient of every number below 2^31", "[kernel]") {
  std::vector<int> divisors = {(1 << 30) - 1, 1 << 30, (1 << 30) + 1, 2147483647};
  for (int d = 1; d < 3000; ++d) divisors.push_back(d);
  std::size_t wrong = 0;
  for (const int divisor : divisors) {
    const Divider by(divisor);
    const auto d = static_cast<unsigned>(divisor);
    const unsigned last = 2147483647u / d;  // the largest quotient
    for (const unsigned q : {0u, 1u, 2u, last / 3, last / 2, last - (last > 0), last})
      for (const std::uint64_t n :
           {std::uint64_t{q} * d, std::uint64_t{q} * d + d / 2, std::uint64_t{q} * d + d - 1})
        if (n < 1u << 31) wrong += by.quotient(static_cast<unsigned>(n)) != n / d;
  }
  CHECK(wrong == 0);
}

TEST_CASE("cells' means, of the pixels that they have, and their gradient", "[kernel]") {
  for (const Storage storage : all_storages)
    for (const auto& [height, width, stride] :
         {std::tuple{7, 5, 2}, {8, 8, 2}, {1, 3, 2}, {11, 4, 3}, {5, 5, 1}}) {
      Window w = window(2, 16, height, width, stride, stride, 0);
      w.out_height = (height + stride - 1) / stride;
      w.out_width = (width + stride - 1) / stride;
      INFO(to_string(storage) << ", " << height << " x " << width << " by " << stride);
      const std::vector<double> x = rounded(storage, some_values(inputs(w), 1));
      const std::size_t count = outputs(w, w.channels);
      const std::vector<double> a = coarse(count, 3), b = coarse(count, 4);
      const Values stored(storage, x), first(storage, a), second(storage, b);
      for (const bool two : {false, true}) {
        const Outputs got = in_every_order([&](cudaStream_t stream) {
          Values y(storage, count), dx(storage, x.size());
          mean_pool(stored.data(), w, storage, y.data(), stream);
          mean_pool_gradient(first.data(), two ? second.data() : nullptr, w, storage, dx.data(),
                             stream);
          return Outputs{y.read(), dx.read()};
        });
        std::vector<double> y(count), dx(x.size());
        for (std::size_t n = 0; n < w.batch; ++n)
          for (int iy = 0; iy < height; ++iy)
            for (int ix = 0; ix < width; ++ix)
              for (int c = 0; c < w.channels; ++c) {
                const int oy = iy / stride, ox = ix / stride;
                const double pixels =
                    std::min(stride, height - oy * stride) * std::min(stride, width - ox * stride);
                const std::size_t from = at(n, iy, ix, c, height, width, w.channels),
                                  to = at(n, oy, ox, c, w.out_height, w.out_width, w.channels);
                y[to] += x[from] / pixels;
                dx[from] = (a[to] + (two ? b[to] : 0)) / pixels;
              }
        check_near(got[0], y, precision_of(storage) + 1e-6, "y");
        check_near(got[1], dx, precision_of(storage) + 1e-6, "dx");
      }
    }
}

TEST_CASE("option A takes every second pixel, new channels around, and gives its gradient back",
          "[kernel]") {
  for (const Storage storage : all_storages)
    for (const auto& [height, width] : {std::pair{7, 5}, {8, 8}, {1, 3}}) {
      const Window w = window(2, 16, height, width, 1, 2, 0);
      const int out_channels = 48;
      INFO(to_string(storage) << ", " << height << " x " << width);
      const std::vector<double> x = rounded(storage, some_values(inputs(w), 1));
      const std::size_t count = outputs(w, out_channels);
      const std::vector<double> a = coarse(count, 3), b = coarse(count, 4);
      const Values stored(storage, x), first(storage, a), second(storage, b);
      const Outputs got = in_every_order([&](cudaStream_t stream) {
        Values y(storage, count), dx(storage, x.size());
        subsample(stored.data(), w, out_channels, storage, y.data(), stream);
        subsample_gradient(first.data(), second.data(), w, out_channels, storage, dx.data(),
                           stream);
        return Outputs{y.read(), dx.read()};
      });
      std::vector<double> y(count), dx(x.size());
      for (std::size_t n = 0; n < w.batch; ++n)
        for (int oy = 0; oy < w.out_height; ++oy)
          for (int ox = 0; ox < w.out_width; ++ox)
            for (int c = 0; c < w.channels; ++c) {
              const std::size_t from = at(n, 2 * oy, 2 * ox, c, height, width, w.channels);
              const std::size_t to = at(n, oy, ox, c + 16, w.out_height, w.out_width, out_channels);
              y[to] = x[from];
              dx[from] = a[to] + b[to];
            }
      check_near(got[0], y, 0, "y");
      check_near(got[1], dx, 0, "dx");
    }
}

TEST_CASE("the mean over an image's pixels and its gradient", "[kernel]") {
  for (const Storage storage : all_storages)
    for (const int pixels : {1, 5, 49}) {
      INFO(to_string(storage) << ", " << pixels << " pixels");
      const std::size_t images = 3, channels = 40, count = images * channels;
      const std::vector<double> x =
          rounded(storage, some_values(count * static_cast<std::size_t>(pixels), 1));
      const std::vector<double> d = some_values(count, 2);
      const Values stored(storage, x);
      Values dmean(Storage::fp32, d);
      const Outputs got = in_every_order([&](cudaStream_t stream) {
        Values mean(Storage::fp32, count), dx(storage, x.size());
        average(stored.data(), images, pixels, 40, storage, mean.floats(), stream);
        average_gradient(dmean.floats(), images, pixels, 40, storage, dx.data(), stream);
        return Outputs{mean.read(), dx.read()};
      });
      std::vector<double> mean(count), dx(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t k =
            i / (channels * static_cast<std::size_t>(pixels)) * channels + i % channels;
        mean[k] += x[i] / pixels;
        dx[i] = d[k] / pixels;
      }
      check_near(got[0], mean, 1e-6, "mean");
      check_near(got[1], dx, precision_of(storage) + 1e-6, "dx");
    }
}
