#include "data/image/pixels/colour.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "data/image/pixels/colour_kernels.hpp"
#include "lockstep/base/rng.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

using Pixels = std::vector<std::uint8_t>;

/// Noise that includes all special cases: greys, black, white, equal channels.
Pixels colours(std::size_t pixels, std::size_t channels) {
  Pixels values(pixels * channels);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::uint8_t>(draw(11, 0, i, Draw::synth));
  for (std::size_t i = 0; i + 5 < pixels; i += 7)
    for (std::size_t c = 0; c < channels; ++c) {
      values[i * channels + c] = values[i * channels];
      values[(i + 1) * channels + c] = 0;
      values[(i + 2) * channels + c] = 255;
      if (c > 0) values[(i + 3) * channels + c] = values[(i + 3) * channels + 1];
    }
  return values;
}

struct Picture {
  std::size_t height, width, channels;
  Pixels before = colours(height * width, channels), after = before;
  Canvas canvas() { return {after.data(), height, width, channels}; }
  double at(std::size_t y, std::size_t x, std::size_t c) const {
    return before[(y * width + x) * channels + c];
  }
  int now(std::size_t y, std::size_t x, std::size_t c) const {
    return after[(y * width + x) * channels + c];
  }
  double grey(std::size_t y, std::size_t x) const {
    if (channels == 1) return at(y, x, 0);
    return std::floor(0.2989 * at(y, x, 0) + 0.587 * at(y, x, 1) + 0.114 * at(y, x, 2) + 1e-9);
  }
  double mean_grey() const {
    double sum = 0;
    for (std::size_t y = 0; y < height; ++y)
      for (std::size_t x = 0; x < width; ++x) sum += grey(y, x);
    return sum / static_cast<double>(height * width);
  }
};

/// Levels are cut off, not rounded: the exact value decides, unless it lies on the edge.
bool is_level(int got, double exact) {
  const double v = std::clamp(exact, 0.0, 255.0);
  return got == static_cast<int>(v) ||
         (std::abs(v - std::nearbyint(v)) < 1e-3 && std::abs(got - v) < 1 + 1e-3);
}

template <class Want>
bool every_level(const Picture& p, Want want) {
  for (std::size_t y = 0; y < p.height; ++y)
    for (std::size_t x = 0; x < p.width; ++x)
      for (std::size_t c = 0; c < p.channels; ++c)
        if (!is_level(p.now(y, x, c), want(y, x, c))) return false;
  return true;
}

// Wide enough for whole registers and a rest.
const std::array<std::array<std::size_t, 3>, 6> picture_shapes = {
    {{1, 1, 3}, {3, 3, 3}, {7, 19, 3}, {33, 37, 3}, {5, 64, 1}, {16, 17, 1}}};

double blended(double value, double other, double ratio) {
  return ratio * value + (1 - ratio) * other;
}

/// The level of one channel (5 red, 3 green, 1 blue) of a colour of hue h (in sixths), by the
/// alternative form of HSV to RGB.
double channel_of(double h, double s, double v, double n) {
  const double k = std::fmod(n + h, 6);
  return 255.999 * (v - v * s * std::max(0.0, std::min({k, 4 - k, 1.0})));
}

double turned(const Picture& p, std::size_t y, std::size_t x, std::size_t c, double by) {
  const double r = p.at(y, x, 0) / 255, g = p.at(y, x, 1) / 255, b = p.at(y, x, 2) / 255;
  const double most = std::max({r, g, b}), range = most - std::min({r, g, b});
  double h = 0;
  if (range > 0 && most == r)
    h = (g - b) / range;
  else if (range > 0 && most == g)
    h = 2 + (b - r) / range;
  else if (range > 0)
    h = 4 + (r - g) / range;
  h = std::fmod(h + 6 * by + 12, 6);
  const std::array<double, 3> n = {5, 3, 1};
  return channel_of(h, most > 0 ? range / most : 0, most, n[c]);
}

}  // namespace

TEST_CASE("brightness, contrast and saturation blend as torchvision's formulas say", "[colour]") {
  for (const auto& [height, width, channels] : picture_shapes)
    for (const double ratio : {0.0, 0.1, 0.73, 1.0, 1.4, 1.9}) {
      Picture p{height, width, channels};
      adjust_brightness(p.canvas(), ratio);
      REQUIRE(every_level(p, [&](auto y, auto x, auto c) { return ratio * p.at(y, x, c); }));
      p.after = p.before;
      adjust_contrast(p.canvas(), ratio);
      const double mean = p.mean_grey();
      REQUIRE(every_level(
          p, [&](auto y, auto x, auto c) { return blended(p.at(y, x, c), mean, ratio); }));
      p.after = p.before;
      adjust_saturation(p.canvas(), ratio);
      REQUIRE(every_level(p, [&](auto y, auto x, auto c) {
        return blended(p.at(y, x, c), p.grey(y, x), channels == 3 ? ratio : 1);
      }));
    }
}

TEST_CASE("a turned hue is the colour of the other hue", "[colour]") {
  for (const double by : {-0.5, -0.31, -0.1, 0.0, 0.05, 0.25, 0.5}) {
    Picture p{33, 37, 3};
    adjust_hue(p.canvas(), by);
    REQUIRE(every_level(p, [&](auto y, auto x, auto c) { return turned(p, y, x, c, by); }));
  }
  Picture grey{5, 5, 1};
  adjust_hue(grey.canvas(), 0.3);
  CHECK(grey.after == grey.before);
}

TEST_CASE("sharpness blends with the blurred image, but not at the edge", "[colour]") {
  std::vector<std::uint8_t> scratch;
  for (const auto& [height, width, channels] : picture_shapes)
    for (const double ratio : {0.0, 0.4, 1.9}) {
      Picture p{height, width, channels};
      adjust_sharpness(p.canvas(), ratio, scratch);
      const auto inside = [&](std::size_t y, std::size_t x) {
        return y > 0 && x > 0 && y + 1 < p.height && x + 1 < p.width;
      };
      REQUIRE(every_level(p, [&](auto y, auto x, auto c) {
        if (!inside(y, x)) return p.at(y, x, c);
        double sum = 4 * p.at(y, x, c);
        for (std::size_t dy = 0; dy < 3; ++dy)
          for (std::size_t dx = 0; dx < 3; ++dx) sum += p.at(y + dy - 1, x + dx - 1, c);
        return blended(p.at(y, x, c), std::nearbyint(sum / 13), ratio);
      }));
    }
}

TEST_CASE("posterise, solarise, autocontrast and equalise are their definitions", "[colour]") {
  for (const auto& [height, width, channels] : picture_shapes) {
    Picture p{height, width, channels};
    for (const int bits : {0, 1, 4, 7, 8}) {
      p.after = p.before;
      posterise(p.canvas(), bits);
      const double step = std::exp2(8 - bits);
      REQUIRE(every_level(
          p, [&](auto y, auto x, auto c) { return std::floor(p.at(y, x, c) / step) * step; }));
    }
    for (const double threshold : {0.0, 17.5, 128.0, 255.0}) {
      p.after = p.before;
      solarise(p.canvas(), threshold);
      REQUIRE(every_level(p, [&](auto y, auto x, auto c) {
        return p.at(y, x, c) >= threshold ? 255 - p.at(y, x, c) : p.at(y, x, c);
      }));
    }
    for (std::uint8_t& level : p.before) level = static_cast<std::uint8_t>(60 + level / 3);
    std::vector<double> least(channels, 255), most(channels, 0);
    for (std::size_t i = 0; i < p.before.size(); ++i) {
      least[i % channels] = std::min<double>(least[i % channels], p.before[i]);
      most[i % channels] = std::max<double>(most[i % channels], p.before[i]);
    }
    p.after = p.before;
    stretch_contrast(p.canvas());
    REQUIRE(every_level(p, [&](auto y, auto x, auto c) {
      if (most[c] == least[c]) return p.at(y, x, c);
      return (p.at(y, x, c) - least[c]) * 255 / (most[c] - least[c]);
    }));
    p.after = p.before;
    equalise(p.canvas());
    REQUIRE(every_level(p, [&](auto y, auto x, auto c) {
      std::size_t below = 0, not_brightest = 0;
      for (std::size_t i = c; i < p.before.size(); i += channels) {
        below += p.before[i] < p.at(y, x, c);
        not_brightest += p.before[i] < most[c];
      }
      const std::size_t step = not_brightest / 255;
      if (step == 0) return p.at(y, x, c);
      return std::floor(static_cast<double>(below + step / 2) / static_cast<double>(step));
    }));
  }
}

TEST_CASE("a warped image shows the nearest pixels, and black where there are none", "[colour]") {
  std::vector<std::uint8_t> scratch;
  const std::size_t height = 9, width = 14;
  const auto agrees = [&](const Affine& from, auto source) {
    Picture p{height, width, 3};
    warp(p.canvas(), from, scratch);
    return every_level(p, [&](auto y, auto x, auto c) {
      const auto [sy, sx] = source(static_cast<double>(y) + 0.5, static_cast<double>(x) + 0.5);
      if (sy < 0 || sy >= double{height} || sx < 0 || sx >= double{width}) return 0.0;
      return p.at(static_cast<std::size_t>(sy), static_cast<std::size_t>(sx), c);
    });
  };
  using Place = std::array<double, 2>;
  CHECK(agrees(translation(3, -2), [](double y, double x) { return Place{y + 2, x - 3}; }));
  for (const double by : {-0.29, -0.1, 0.17}) {
    CHECK(agrees(shear_x(by), [&](double y, double x) { return Place{y, x + by * y}; }));
    CHECK(agrees(shear_y(by), [&](double y, double x) { return Place{y + by * x, x}; }));
  }
  // A quarter counterclockwise: the right side is now on top.
  Picture p{9, 9, 3};
  warp(p.canvas(), rotation(90, 9, 9), scratch);
  CHECK(every_level(p, [&](auto y, auto x, auto c) { return p.at(x, 8 - y, c); }));
  CHECK(agrees(rotation(-11, height, width), [&](double y, double x) {
    const double a = -11 * std::acos(-1.0) / 180, dy = y - 4.5, dx = x - 7;
    return Place{4.5 + std::sin(a) * dx + std::cos(a) * dy,
                 7 + std::cos(a) * dx - std::sin(a) * dy};
  }));
}

TEST_CASE("two images are mixed to the nearest level", "[colour]") {
  const Pixels a = colours(100, 3), b = colours(200, 3);
  for (const float share : {0.5f, 0.625f, 0.9f, 1.0f}) {
    Pixels mixed = a;
    mix(mixed.data(), b.data() + 300, mixed.size(), share);
    for (std::size_t i = 0; i < mixed.size(); ++i) {
      const double exact = a[i] * double{share} + b[i + 300] * (1 - double{share});
      REQUIRE(std::abs(mixed[i] - exact) < 0.5001);
    }
  }
}

TEST_CASE("every instruction set makes the same levels", "[colour]") {
  const std::vector<const ColourKernels*> sets = colour_sets();
  REQUIRE(sets.back() == &colour_plain);
  const Pixels before = colours(3001, 3);
  const auto results = [&](const ColourKernels& k, float by) {
    std::vector<Pixels> all(5, before);
    k.stretch(all[0].data(), before.size(), 1 + by, 17.3f * by);
    k.blend(all[1].data(), all[0].data(), before.size(), 1 - by, by, 0.5f);
    k.saturate(all[2].data(), 3001, 1 + by, -by);
    k.turn(all[3].data(), 3001, by);
    k.sharpen(before.data() + 3, before.data() + 903, before.data() + 1803, 894, 3, 1 + by, -by,
              all[4].data());
    all.push_back(Pixels(1, static_cast<std::uint8_t>(k.grey_sum(before.data(), 3001))));
    return all;
  };
  for (const float by : {-0.47f, -0.013f, 0.0f, 0.21f, 0.5f})
    for (const ColourKernels* set : sets) REQUIRE(results(*set, by) == results(*sets[0], by));
}
