// Compares convolutions by Winograd's algorithm with loops in double precision.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <iostream>

#include "lockstep/base/rng.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cpu/units/conv/winograd_conv.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::cpu;
using namespace lockstep::test;

namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

bool skipped(Storage storage) {
  const bool missing = !winograd_kernels(storage, 16);
  if (missing)
    std::cout << "SKIPPED: this processor has no "
              << (storage == Storage::fp32 ? "AVX-512\n" : "AVX512-BF16, or it has AMX\n");
  return missing;
}

Floats random(std::size_t count, std::uint64_t seed) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(static_cast<double>(philox(seed, i, 0).word[0]) / 0x1p31 - 1);
  return values;
}

/// With 10 bits after the leading one, as TF32 rounds what it multiplies.
Floats as_tf32(Floats values) {
  for (float& v : values)
    v = std::bit_cast<float>((std::bit_cast<std::uint32_t>(v) + 0x1000) & 0xffffe000);
  return values;
}

using Halves = std::vector<std::uint16_t>;

Halves as_bf16(const Floats& values) {
  Halves halves;
  for (const float v : values) {
    const auto bits = std::bit_cast<std::uint32_t>(v);
    halves.push_back(static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
  }
  return halves;
}

Floats from_bf16(const Halves& halves) {
  Floats values;
  for (const std::uint16_t half : halves)
    values.push_back(std::bit_cast<float>(std::uint32_t{half} << 16));
  return values;
}

/// Images as float or as bf16.
template <class Value>
std::vector<Value> stored(const Floats& values) {
  if constexpr (sizeof(Value) == 4)
    return values;
  else
    return as_bf16(values);
}

Floats values_of(const Floats& values) { return values; }
Floats values_of(const Halves& values) { return from_bf16(values); }

struct Problem {
  std::size_t in, out, height, width, rows;
  Storage storage = Storage::fp32;
  ConvGeometry geometry() const {
    return {"conv", in, height, width, out, height, width, 3, 1, 1, storage, 1, 1};
  }
  std::size_t x(std::size_t n, std::size_t y, std::size_t x, std::size_t c) const {
    return ((n * height + y) * width + x) * in + c;
  }
  std::size_t y(std::size_t n, std::size_t y, std::size_t x, std::size_t c) const {
    return ((n * height + y) * width + x) * out + c;
  }
  /// in the arena's format
  std::size_t w(std::size_t o, std::size_t i, std::size_t tap) const {
    return (((o / 16 * (in / 16) + i / 16) * 9 + tap) * 16 + i % 16) * 16 + o % 16;
  }
  /// Calls body(index of x, of y, of w) for each product of the convolution.
  template <class Body>
  void each(const Body& body) const {
    for (std::size_t n = 0; n < rows; ++n)
      for (std::size_t py = 0; py < height; ++py)
        for (std::size_t px = 0; px < width; ++px)
          for (std::size_t tap = 0; tap < 9; ++tap) {
            const std::size_t iy = py + tap / 3 - 1, ix = px + tap % 3 - 1;
            if (iy >= height || ix >= width) continue;
            for (std::size_t o = 0; o < out; ++o)
              for (std::size_t i = 0; i < in; ++i)
                body(x(n, iy, ix, i), y(n, py, px, o), w(o, i, tap));
          }
  }
};

struct Results {
  Floats y, dx, dw;
};

/// Values: float or bf16.
template <class Value>
struct Passes {
  std::vector<Value> y, dx;
  Floats dw;
};

template <class Value>
Passes<Value> run(const Problem& p, const std::vector<Value>& x, const Floats& w,
                  const std::vector<Value>& dy) {
  const WinogradConv conv(p.geometry());
  Floats transformed(conv.weight_bytes() / sizeof(float) + 1),
      scratch(conv.scratch_bytes(p.rows) / 4 + 1, 0.5f);
  Passes<Value> r{std::vector<Value>(dy.size()), std::vector<Value>(x.size()), Floats(w.size())};
  const auto in = [](const auto& v) { return reinterpret_cast<const std::byte*>(v.data()); };
  const auto out = [](auto& v) { return reinterpret_cast<std::byte*>(v.data()); };
  for (const std::size_t part : {1u, 0u, 2u})
    conv.transform_forward(w.data(), part, 3, transformed.data());
  conv.forward(p.rows, in(x), w.data(), transformed.data(), out(r.y), out(scratch));
  conv.transform_backward(w.data(), 0, 1, transformed.data());
  conv.data_gradient(p.rows, in(dy), w.data(), transformed.data(), out(r.dx), out(scratch));
  conv.weight_gradient(p.rows, in(x), in(dy), false, r.dw.data(), out(scratch));
  CHECK(scratch.back() == 0.5f);  // nothing is written past the end
  return r;
}

Results by_winograd(const Problem& p, const Floats& x, const Floats& w, const Floats& dy) {
  const auto r = run(p, x, w, dy);
  return {r.y, r.dx, r.dw};
}

struct Exact {
  Doubles y, dx, dw;
};

Exact exact(const Problem& p, const Floats& x, const Floats& w, const Floats& dy) {
  Exact r{Doubles(dy.size()), Doubles(x.size()), Doubles(w.size())};
  p.each([&](std::size_t i, std::size_t o, std::size_t k) {
    r.y[o] += static_cast<double>(x[i]) * w[k];
    r.dx[i] += static_cast<double>(dy[o]) * w[k];
    r.dw[k] += static_cast<double>(x[i]) * dy[o];
  });
  return r;
}

}  // namespace

TEST_CASE("each pass by Winograd's algorithm is the convolution, far closer than TF32",
          "[cpu][winograd]") {
  if (skipped(Storage::fp32)) return;
  // Sizes that are and are not multiples of a tile; more tiles than a block has; odd panels.
  const Problem p =
      GENERATE(Problem{16, 16, 1, 1, 1}, Problem{16, 48, 5, 7, 2}, Problem{80, 32, 8, 3, 3},
               Problem{32, 16, 26, 30, 3}, Problem{128, 96, 4, 4, 2},
               Problem{352, 368, 2, 3, 1});  // too many weights to keep transformed
  const Floats x = random(p.rows * p.height * p.width * p.in, 1), w = random(p.in * p.out * 9, 2),
               dy = random(p.rows * p.height * p.width * p.out, 3);
  const Exact want = exact(p, x, w, dy), rounded = exact(p, as_tf32(x), as_tf32(w), as_tf32(dy));
  const Results got = by_winograd(p, x, w, dy);
  const auto check_pass = [](const char* name, const Floats& g, const Doubles& e,
                             const Doubles& t) {
    const double error = distance(g, e), tf32 = distance(Floats(t.begin(), t.end()), e);
    INFO(name << ": " << error << ", TF32 " << tf32);
    CHECK(error <= 4e-6);  // the transforms amplify a rounding some times
    CHECK(error <= 0.02 * tf32);
  };
  check_pass("forward", got.y, want.y, rounded.y);
  check_pass("data gradient", got.dx, want.dx, rounded.dx);
  check_pass("weight gradient", got.dw, want.dw, rounded.dw);
}

TEST_CASE("in bf16 each pass by Winograd's algorithm is the convolution, rounded once",
          "[cpu][winograd]") {
  if (skipped(Storage::bf16)) return;
  const Problem p =
      GENERATE(Problem{16, 48, 5, 7, 2, Storage::bf16}, Problem{32, 16, 26, 30, 3, Storage::bf16});
  const Halves x = as_bf16(random(p.rows * p.height * p.width * p.in, 1)),
               dy = as_bf16(random(p.rows * p.height * p.width * p.out, 3));
  const Floats w = random(p.in * p.out * 9, 2);
  const Exact want = exact(p, from_bf16(x), w, from_bf16(dy));
  const auto got = run(p, x, w, dy);
  const auto rounded_once = [](const Halves& g, const Doubles& e) {
    const Floats best = from_bf16(as_bf16(Floats(e.begin(), e.end())));
    CHECK(distance(from_bf16(g), e) <= 1.01 * distance(best, e));
  };
  rounded_once(got.y, want.y);
  rounded_once(got.dx, want.dx);
  CHECK(distance(got.dw, want.dw) <= 4e-6);
}

TEST_CASE("with many channels in bf16 the products' rounding costs about what bf16 costs again",
          "[cpu][winograd]") {
  if (skipped(Storage::bf16)) return;
  // Odd sizes and panels; more tiles than a block has; too many weights to keep transformed.
  const Problem p = GENERATE(
      Problem{64, 80, 5, 7, 2, Storage::bf16}, Problem{80, 64, 14, 14, 3, Storage::bf16},
      Problem{64, 64, 31, 33, 2, Storage::bf16}, Problem{720, 736, 2, 3, 1, Storage::bf16});
  const Halves x = as_bf16(random(p.rows * p.height * p.width * p.in, 1)),
               dy = as_bf16(random(p.rows * p.height * p.width * p.out, 3));
  const Floats w = random(p.in * p.out * 9, 2);
  const Exact want = exact(p, from_bf16(x), w, from_bf16(dy));
  const Exact direct = exact(p, from_bf16(x), from_bf16(as_bf16(w)), from_bf16(dy));
  const auto got = run(p, x, w, dy);
  const auto as_direct = [](const Halves& g, const Doubles& d, const Doubles& e) {
    const Floats rounded = from_bf16(as_bf16(Floats(d.begin(), d.end())));
    CHECK(distance(from_bf16(g), e) <= 2.2 * distance(rounded, e));
  };
  as_direct(got.y, direct.y, want.y);
  as_direct(got.dx, direct.dx, want.dx);
  CHECK(distance(got.dw, want.dw) <= 5e-3);
}

TEMPLATE_TEST_CASE("a row's output by Winograd's algorithm has the same bits among any other rows",
                   "[cpu][winograd]", float, std::uint16_t) {
  const Storage storage = sizeof(TestType) == 4 ? Storage::fp32 : Storage::bf16;
  const std::size_t channels = GENERATE(32u, 64u);
  if (skipped(storage)) return;
  const Problem p{channels, channels + 16, 18, 11, 5, storage};
  Problem one = p;
  one.rows = 1;
  using Values = std::vector<TestType>;
  const Values x = stored<TestType>(random(p.x(5, 0, 0, 0), 1)),
               dy = stored<TestType>(random(p.y(5, 0, 0, 0), 3));
  const Floats w = random(p.in * p.out * 9, 2);
  const auto all = run(p, x, w, dy);
  const auto part = [](const Values& v, std::size_t from, std::size_t to) {
    return Values(v.begin() + static_cast<std::ptrdiff_t>(from),
                  v.begin() + static_cast<std::ptrdiff_t>(to));
  };
  for (std::size_t n = 0; n < p.rows; ++n) {
    const auto [a, b] = std::pair(p.x(n, 0, 0, 0), p.x(n + 1, 0, 0, 0));
    const auto [c, d] = std::pair(p.y(n, 0, 0, 0), p.y(n + 1, 0, 0, 0));
    const auto alone = run(one, part(x, a, b), w, part(dy, c, d));
    CHECK(alone.y == part(all.y, c, d));
    CHECK(alone.dx == part(all.dx, a, b));
  }
}

TEMPLATE_TEST_CASE("parts by Winograd's algorithm have the bits of the whole, with what follows it",
                   "[cpu][winograd]", float, std::uint16_t) {
  const Storage storage = sizeof(TestType) == 4 ? Storage::fp32 : Storage::bf16;
  if (skipped(storage)) return;
  // Weights larger than images, of which outputs are shared, and smaller ones.
  const Problem p =
      GENERATE_COPY(Problem{64, 144, 3, 5, 1, storage}, Problem{16, 32, 21, 14, 2, storage},
                    Problem{368, 352, 2, 3, 2, storage});
  const auto x = stored<TestType>(random(p.x(p.rows, 0, 0, 0), 1)),
             skip = stored<TestType>(random(p.y(p.rows, 0, 0, 0), 3));
  const Floats w = random(p.in * p.out * 9, 2), scale = random(p.out, 4), shift = random(p.out, 5);
  const WinogradConv conv(p.geometry());
  Floats transformed(conv.weight_bytes() / sizeof(float) + 1),
      scratch(conv.scratch_bytes(p.rows) / sizeof(float));
  conv.transform_forward(w.data(), 0, 1, transformed.data());
  const auto bytes = [](auto& v) { return reinterpret_cast<std::byte*>(v.data()); };
  const auto make = [&](const std::vector<WinogradPart>& parts, bool in_place) {
    auto y = in_place ? skip : stored<TestType>(Floats(skip.size(), 0.25f));
    auto from = x;
    for (const WinogradPart& part : parts)
      conv.evaluate(p.rows, part, bytes(from), w.data(), transformed.data(),
                    {scale.data(), shift.data(), in_place ? y.data() : skip.data()}, bytes(y),
                    bytes(scratch));
    return y;
  };
  const auto whole = make({conv.whole(p.rows)}, false);
  std::vector<WinogradPart> shares, lines;
  for (std::size_t lane = 0; lane < 3; ++lane) shares.push_back(conv.share(p.rows, lane, 3));
  for (std::size_t image = 0; image < p.rows; ++image)
    for (std::size_t line = 0; line < conv.tile_lines(); ++line)
      lines.push_back(conv.lines(image, line, 1));
  CHECK(make(shares, false) == whole);
  CHECK(make(shares, true) == whole);
  CHECK(make(lines, false) == whole);
  Doubles want = exact(p, values_of(x), w, Floats(skip.size())).y;
  const Floats added = values_of(skip);
  for (std::size_t i = 0; i < want.size(); ++i)
    want[i] = std::max(0.0, want[i] * scale[i % p.out] + shift[i % p.out] + added[i]);
  CHECK(distance(values_of(whole), want) <= (storage == Storage::fp32 ? 4e-6 : 0.02));
}

TEST_CASE("a network's loss and gradients by Winograd's algorithm are the oracle's",
          "[cpu][winograd]") {
  if (skipped(Storage::fp32)) return;
  const std::size_t threads = GENERATE(1u, 2u, 4u, 6u);  // the last two: bands of lines
  for (const nn::Network& network : all_sketches()) {
    Case c = settled_case(network, 3);
    Compiled compiled(c, 3, make_cpu_backend({std::vector<std::vector<int>>(threads)}),
                      Precision::fp32, false, false, {Winograd::Mode::everywhere, {}});
    CHECK(compiled.run(c, 0, false) / 3 == Approx(c.loss).epsilon(1e-6));
    CHECK(gradient_distance(compiled, c.oracle.backward()) <= 2e-5);
    CHECK(compiled.backend->description().find(", Winograd true") != std::string::npos);
  }
}

TEST_CASE("in bf16 a network by Winograd's algorithm is the oracle's within bf16's rounding",
          "[cpu][winograd]") {
  if (skipped(Storage::bf16)) return;
  const std::size_t threads = GENERATE(2u, 4u);  // the last: bands of lines
  bool another_way = false;
  for (const nn::Network& network : all_sketches()) {
    Case c = settled_case(network, 3);
    const auto want = c.oracle.backward();
    const auto distance_of = [&](Winograd::Mode mode) {
      Compiled compiled(c, 3, make_cpu_backend({std::vector<std::vector<int>>(threads)}),
                        Precision::bf16, false, false, {mode, {}});
      CHECK(compiled.run(c, 0, false) / 3 == Approx(c.loss).epsilon(0.02));
      return gradient_distance(compiled, want);
    };
    const double winograd = distance_of(Winograd::Mode::everywhere);
    CHECK(winograd <= 0.3);  // some ReLUs of these small networks flip
    another_way = another_way || winograd != distance_of(Winograd::Mode::never);
  }
  CHECK(another_way);
}

TEST_CASE("what is measured is a list of the network's convolutions", "[cpu][winograd]") {
  const auto backend = make_cpu_backend({std::vector<std::vector<int>>(2)});
  if (!backend->offers_winograd(Precision::fp32)) return;
  ProgramSpec spec;
  spec.batch = 8;
  const Winograd measured =
      backend->measure_winograd(nn::resnet(nn::usual_resnet("resnet20", 0, 0)), spec);
  for (const auto& [shape, passes] : measured.list) {
    CHECK(shape.in == shape.out);
    CHECK(shape.in * shape.height == 16 * 32);
    CHECK(passes.any());
  }
  CHECK_FALSE(backend->offers_winograd(Precision::tf32));
}
