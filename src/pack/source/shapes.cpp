#include "lockstep/pack/source/shapes.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"

namespace lockstep::pack {
namespace {

constexpr std::size_t side = 32;

enum class Outline { disc, ring, triangle, square, cross, star, crescent };
enum class Texture { plain, striped, chequered, dotted };
constexpr std::size_t outlines = 7;

struct Point {
  float x = 0, y = 0;
};
float length(Point p) { return std::sqrt(p.x * p.x + p.y * p.y); }
float dot(Point a, Point b) { return a.x * b.x + a.y * b.y; }

using Colour = std::array<float, 3>;  // 0 .. 1
float luma(const Colour& c) { return 0.299f * c[0] + 0.587f * c[1] + 0.114f * c[2]; }
Colour mix(const Colour& from, const Colour& to, float share) {
  Colour out;
  for (std::size_t i = 0; i < 3; ++i) out[i] = from[i] + share * (to[i] - from[i]);
  return out;
}

/// The random numbers of one row, in the order in which its scene uses them.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t row) : seed_(seed), row_(row) {}

  std::uint32_t bits() {
    if (used_ == 4) {
      words_ = draw4(seed_, block_++, row_, Draw::synth);
      used_ = 0;
    }
    return words_.word[used_++];
  }
  float between(float low, float high) { return low + unit(bits()) * (high - low); }
  std::uint32_t from(std::uint32_t n) { return below(bits(), n); }
  Colour colour() { return {between(0, 1), between(0, 1), between(0, 1)}; }
  /// A colour whose brightness differs enough from the other's to be seen under noise.
  Colour contrasting(const Colour& other, float contrast) {
    Colour c = colour();
    while (std::abs(luma(c) - luma(other)) < contrast) c = colour();
    return c;
  }
  /// A share of another colour mixed into this one. The share is drawn first: each draw has its own
  /// statement, or is in braces, because a compiler may evaluate a call's arguments in any order.
  Colour mixed(const Colour& from, float low, float high) {
    const float share = between(low, high);
    return mix(from, colour(), share);
  }
  /// A unit vector of uniform direction (Marsaglia 1972), without sine and cosine.
  Point direction() {
    for (;;) {
      const Point p{between(-1, 1), between(-1, 1)};
      const float r = length(p);
      if (r > 0.1f && r <= 1) return {p.x / r, p.y / r};
    }
  }

 private:
  std::uint64_t seed_, row_, block_ = 0;
  Philox words_{};
  int used_ = 4;
};

/// Signed distances (negative inside) to outlines that fit into the unit circle. They are exact
/// near the edges, where antialiasing uses them.
float distance_to_star(Point p) {
  // A point is inside a pentagram when it is inside all but at most one of its five lines.
  constexpr std::array<Point, 5> normals{{{0, 1},
                                          {0.95105652f, 0.30901699f},
                                          {0.58778525f, -0.80901699f},
                                          {-0.58778525f, -0.80901699f},
                                          {-0.95105652f, 0.30901699f}}};
  float largest = -2, second = -2;
  for (const Point& n : normals) {
    const float d = dot(n, p) - 0.36f;
    second = std::max(second, std::min(largest, d));
    largest = std::max(largest, d);
  }
  return second;
}

float distance_to(Outline outline, Point p) {
  const Point a{std::abs(p.x), std::abs(p.y)};
  switch (outline) {
    case Outline::disc:
      return length(p) - 0.9f;
    case Outline::ring:
      return std::abs(length(p) - 0.72f) - 0.22f;
    case Outline::triangle:
      return std::max(p.y, 0.8660254f * a.x - 0.5f * p.y) - 0.55f;
    case Outline::square:
      return std::max(a.x, a.y) - 0.78f;
    case Outline::cross:
      return std::min(std::max(a.x - 1, a.y - 0.28f), std::max(a.x - 0.28f, a.y - 1));
    case Outline::star:
      return distance_to_star(p);
    case Outline::crescent:
      return std::max(length(p) - 0.95f, 0.75f - length({p.x - 0.5f, p.y}));
  }
  return 1;
}

float coverage(float distance) { return std::clamp(0.5f - distance, 0.0f, 1.0f); }

/// A triangle wave: -1/2 .. 1/2, with slope +-2.
float wave(float x) { return std::abs(2 * (x - std::floor(x)) - 1) - 0.5f; }

/// Signed distance, in pixels, to the texture's second colour at `p` pixels from the centre.
float distance_to(Texture texture, Point p, float period) {
  const float u = wave(p.x / period), v = wave(p.y / period);
  switch (texture) {
    case Texture::plain:
      return 1;
    case Texture::striped:
      return u * period / 2;
    case Texture::chequered:
      return (u * v > 0 ? 1.0f : -1.0f) * std::min(std::abs(u), std::abs(v)) * period / 2;
    case Texture::dotted:
      return length({(u + 0.5f) * period / 2, (v + 0.5f) * period / 2}) - 0.3f * period;
  }
  return 1;
}

struct Thing {
  Outline outline = Outline::disc;
  Texture texture = Texture::plain;
  Point centre, axis;
  float radius = 0, period = 1, shear = 1;
  Colour colour{}, second{};
};

/// Clutter: a straight line with round ends, or a speck, which says nothing about the class.
struct Stroke {
  Point from, along;
  float length = 0, radius = 0;
  Colour colour{};
};

struct Scene {
  Colour background{}, far_background{};
  Point background_slope, light_slope;
  float noise = 0;
  std::vector<Stroke> strokes;
  Thing thing;
};

Thing make_thing(Dice& dice, std::size_t label, const Colour& background) {
  Thing thing;
  const bool textured = label >= outlines;
  thing.texture = textured ? static_cast<Texture>(label - outlines + 1) : Texture::plain;
  // Rings, crosses, stars and crescents are too thin to show a texture.
  constexpr std::array<Outline, 3> full{Outline::disc, Outline::triangle, Outline::square};
  thing.outline = textured ? full[dice.from(full.size())] : static_cast<Outline>(label);
  thing.radius = textured ? dice.between(9, 13) : dice.between(6.5f, 12);
  const float margin = thing.radius * 0.9f;
  thing.centre = {dice.between(margin, side - margin), dice.between(margin, side - margin)};
  thing.axis = dice.direction();
  thing.shear = dice.between(0.85f, 1.18f);
  thing.period =
      thing.texture == Texture::chequered ? dice.between(6, 8.5f) : dice.between(4.5f, 6);
  thing.colour = dice.contrasting(background, 0.18f);
  thing.second = dice.contrasting(thing.colour, 0.25f);
  return thing;
}

Scene make_scene(Dice& dice, std::size_t label) {
  Scene scene;
  scene.background = dice.colour();
  scene.far_background = dice.mixed(scene.background, 0, 0.3f);
  const Point slope = dice.direction(), light = dice.direction();
  scene.background_slope = {slope.x / side, slope.y / side};
  const float strength = dice.between(0, 0.5f) / side;
  scene.light_slope = {light.x * strength, light.y * strength};
  scene.noise = dice.between(0.02f, 0.08f);
  scene.strokes.resize(3 + dice.from(6));
  for (Stroke& stroke : scene.strokes) {
    stroke.from = {dice.between(0, side), dice.between(0, side)};
    stroke.along = dice.direction();
    stroke.length = dice.from(3) == 0 ? 0 : dice.between(2, 9);
    stroke.radius = dice.between(0.5f, 1.3f);
    stroke.colour = dice.mixed(scene.background, 0.4f, 0.9f);
  }
  scene.thing = make_thing(dice, label, scene.background);
  return scene;
}

void paint(Colour& pixel, const Stroke& stroke, Point p) {
  const Point q{p.x - stroke.from.x, p.y - stroke.from.y};
  const float t = std::clamp(dot(q, stroke.along), 0.0f, stroke.length);
  const float d = length({q.x - t * stroke.along.x, q.y - t * stroke.along.y}) - stroke.radius;
  if (d < 0.5f) pixel = mix(pixel, stroke.colour, coverage(d));
}

void paint(Colour& pixel, const Thing& thing, Point p) {
  const Point q{p.x - thing.centre.x, p.y - thing.centre.y};
  const Point turned{dot(q, thing.axis), q.y * thing.axis.x - q.x * thing.axis.y};
  const Point in_unit{turned.x / thing.radius * thing.shear, turned.y / thing.radius};
  const float share = coverage(distance_to(thing.outline, in_unit) * thing.radius);
  if (share == 0) return;
  const float second = thing.texture == Texture::plain
                           ? 0
                           : coverage(distance_to(thing.texture, turned, thing.period));
  pixel = mix(pixel, mix(thing.colour, thing.second, second), share);
}

/// The sum of four bytes: close enough to a normal distribution (Irwin-Hall), mean 0, deviation 1.
float noise(std::uint32_t bits) {
  const std::uint32_t sum = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24);
  return (static_cast<float>(sum) - 510) / 147.8f;
}

}  // namespace

const std::vector<std::string>& shape_classes() {
  static const std::vector<std::string> names{"disc",      "ring",  "triangle", "square",
                                              "cross",     "star",  "crescent", "striped",
                                              "chequered", "dotted"};
  return names;
}

data::Image render_shape(std::uint64_t seed, std::uint64_t row, std::size_t label) {
  check(label < shape_classes().size(), "a shape's label is its class");
  Dice dice(seed, row);
  const Scene scene = make_scene(dice, label);
  data::Image image{.height = side,
                    .width = side,
                    .channels = 3,
                    .pixels = std::vector<std::uint8_t>(side * side * 3)};
  std::uint8_t* out = image.pixels.data();
  for (std::size_t y = 0; y < side; ++y) {
    for (std::size_t x = 0; x < side; ++x) {
      const Point p{static_cast<float>(x) + 0.5f, static_cast<float>(y) + 0.5f};
      const Point from_middle{p.x - side * 0.5f, p.y - side * 0.5f};
      const float depth = std::clamp(dot(from_middle, scene.background_slope) + 0.5f, 0.0f, 1.0f);
      Colour pixel = mix(scene.background, scene.far_background, depth);
      for (const Stroke& stroke : scene.strokes) paint(pixel, stroke, p);
      paint(pixel, scene.thing, p);
      const float light = 1 + dot(from_middle, scene.light_slope);
      for (const float value : pixel) {
        const float noisy = value * light + scene.noise * noise(dice.bits());
        *out++ = static_cast<std::uint8_t>(std::lround(std::clamp(noisy, 0.0f, 1.0f) * 255));
      }
    }
  }
  return image;
}

namespace {

class Shapes final : public Source {
 public:
  explicit Shapes(const ShapesSpec& spec) : spec_(spec) {}
  std::string kind() const override { return "shapes"; }
  const std::vector<std::string>& classes() const override { return shape_classes(); }
  std::size_t rows() const override { return spec_.training_rows + spec_.validation_rows; }
  std::size_t training_rows() const override { return spec_.training_rows; }
  std::size_t native_channels() const override { return 3; }
  std::int32_t label(std::size_t row) const override {
    return static_cast<std::int32_t>(row % shape_classes().size());
  }
  std::string name(std::size_t row) const override { return "shape " + std::to_string(row); }
  data::Image read(std::size_t row) const override {
    return render_shape(spec_.seed, row, static_cast<std::size_t>(label(row)));
  }

 private:
  ShapesSpec spec_;
};

}  // namespace

std::unique_ptr<Source> make_shapes(const ShapesSpec& spec) {
  return std::make_unique<Shapes>(spec);
}

}  // namespace lockstep::pack
