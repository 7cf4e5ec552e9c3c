#include "lockstep/data/augment/mix.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "data/image/pixels/colour.hpp"
#include "lockstep/base/rng.hpp"

namespace lockstep::data {
namespace {

/// A sequence of random numbers, as long as needed.
class Numbers {
 public:
  Numbers(std::uint64_t seed, std::uint64_t epoch, std::uint64_t batch)
      : seed_(seed), epoch_(epoch), batch_(batch) {}
  std::uint32_t bits() {
    if (used_ == 4) words_ = draw4(seed_, epoch_, batch_, Draw::mix, attempt_++), used_ = 0;
    return words_.word[used_++];
  }
  double inside() { return (static_cast<double>(bits()) + 0.5) * 0x1p-32; }  ///< 0 < x < 1
  double normal() {                                                          // Box and Muller 1958
    const double length = std::sqrt(-2 * std::log(inside()));
    return length * std::cos(2 * std::numbers::pi * inside());
  }

 private:
  std::uint64_t seed_, epoch_, batch_;
  std::uint32_t attempt_ = 0;
  std::size_t used_ = 4;
  Philox words_{};
};

/// The logarithm of a number of Gamma(shape): Marsaglia and Tsang 2000. With a small shape the
/// numbers themselves would be too small for a double.
double log_gamma_number(double shape, Numbers& numbers) {
  const double d = shape + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = numbers.normal(), root = 1 + c * x;
    const double u = numbers.inside();
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(u) < x * x / 2 + d - d * v + d * std::log(v))
      return std::log(d * v) + std::log(numbers.inside()) / shape;
  }
}

/// A number of Beta(alpha, alpha), in steps of 2^-16: coarse enough that the last bit of a
/// logarithm, which depends on the processor, does not matter.
double beta_number(double alpha, Numbers& numbers) {
  const double a = log_gamma_number(alpha, numbers), b = log_gamma_number(alpha, numbers);
  return std::nearbyint(65536 / (1 + std::exp(b - a))) / 65536;
}

Mix cut_of(double share, std::size_t height, std::size_t width, Numbers& numbers) {
  const auto x =
      static_cast<std::ptrdiff_t>(below(numbers.bits(), static_cast<std::uint32_t>(width)));
  const auto y =
      static_cast<std::ptrdiff_t>(below(numbers.bits(), static_cast<std::uint32_t>(height)));
  const double half = 0.5 * std::sqrt(1 - share);
  const auto across = static_cast<std::ptrdiff_t>(half * static_cast<double>(width));
  const auto down = static_cast<std::ptrdiff_t>(half * static_cast<double>(height));
  const auto inside = [](std::ptrdiff_t place, std::size_t side) {
    return static_cast<std::size_t>(
        std::clamp<std::ptrdiff_t>(place, 0, static_cast<std::ptrdiff_t>(side)));
  };
  Mix mix;
  mix.box.left = inside(x - across, width);
  mix.box.top = inside(y - down, height);
  mix.box.width = inside(x + across, width) - mix.box.left;
  mix.box.height = inside(y + down, height) - mix.box.top;
  mix.share =
      1 - static_cast<float>(mix.box.width * mix.box.height) / static_cast<float>(width * height);
  return mix;
}

void paste(const Box& box, std::size_t width, std::size_t pixel_bytes, const std::uint8_t* from,
           std::uint8_t* to) {
  for (std::size_t y = box.top; y < box.top + box.height; ++y) {
    const std::size_t at = (y * width + box.left) * pixel_bytes;
    std::memcpy(to + at, from + at, box.width * pixel_bytes);
  }
}

Target mixed(const Target& own, const Target& partner, float share) {
  if (share >= 0.5f) return {own.label_a, partner.label_a, share};
  return {partner.label_a, own.label_a, 1 - share};
}

}  // namespace

Mix draw_mix(const MixSpec& spec, std::uint64_t epoch, std::uint64_t batch, std::size_t height,
             std::size_t width) {
  Numbers numbers(spec.seed, epoch, batch);
  const bool tails = (numbers.bits() >> 31) != 0;
  const bool cuts = spec.cutmix > 0 && (spec.mixup <= 0 || tails);
  const double share = beta_number(static_cast<double>(cuts ? spec.cutmix : spec.mixup), numbers);
  if (cuts) return cut_of(share, height, width, numbers);
  Mix mix;
  mix.share = static_cast<float>(share);
  return mix;
}

void mix_rows(const Mix& how, std::size_t rows, std::size_t height, std::size_t width,
              std::size_t pixel_bytes, std::uint8_t* images, Target* targets) {
  if (rows < 2 || how.share >= 1) return;
  const std::size_t bytes = height * width * pixel_bytes;
  const std::uint8_t* const last = images + (rows - 1) * bytes;
  const std::vector<std::uint8_t> unmixed_last(last, last + bytes);
  const Target last_target = targets[rows - 1];
  for (std::size_t row = rows; row-- > 0;) {
    std::uint8_t* const image = images + row * bytes;
    const std::uint8_t* const partner = row > 0 ? image - bytes : unmixed_last.data();
    if (how.is_cut())
      paste(how.box, width, pixel_bytes, partner, image);
    else
      mix(image, partner, bytes, how.share);
    targets[row] = mixed(targets[row], row > 0 ? targets[row - 1] : last_target, how.share);
  }
}

void mix_wanted(const Mix& how, std::size_t rows, std::size_t outputs, float* wanted) {
  if (rows < 2 || how.share >= 1) return;
  const float* const last = wanted + (rows - 1) * outputs;
  const std::vector<float> unmixed_last(last, last + outputs);
  for (std::size_t row = rows; row-- > 0;) {
    float* const own = wanted + row * outputs;
    const float* const partner = row > 0 ? own - outputs : unmixed_last.data();
    for (std::size_t k = 0; k < outputs; ++k)
      own[k] = how.share * own[k] + (1 - how.share) * partner[k];
  }
}

}  // namespace lockstep::data
