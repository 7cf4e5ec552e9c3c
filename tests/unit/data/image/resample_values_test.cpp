#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "data/image/pixels/resample.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/data/element_bytes.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace lockstep::test::resample_values {
namespace {

/// The triangle filter of a target pixel, in both directions at once.
double weight(std::size_t target, std::size_t source, std::size_t from, std::size_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double away =
      (static_cast<double>(source) + 0.5) - (static_cast<double>(target) + 0.5) * scale;
  return std::max(1 - std::abs(away) / std::max(scale, 1.0), 0.0);
}

struct Image {
  DataSetInfo info;
  std::vector<std::uint8_t> bytes;
  std::vector<float> values;
};

Image image_of(Element element, std::size_t channels, bool sparse) {
  Image image{.info = {.height = 13, .width = 9, .channels = channels, .element = element},
              .bytes = {},
              .values = {}};
  if (sparse) image.info.no_data = is_float(element) ? NAN : 7.0f;
  for (std::size_t i = 0; i < image.info.row_values(); ++i) {
    const std::uint64_t bits = draw(5, channels, i, Draw::synth);
    const bool none = sparse && bits % 6 == 0;
    // Steep: large values next to small ones.
    const float value = bits % 3 == 0 ? static_cast<float>(bits >> 40 & 255) : 250;
    append_element(element, none ? *image.info.no_data : value, image.bytes);
  }
  for_each_value(element, image.bytes,
                 [&](std::size_t, float value) { image.values.push_back(value); });
  return image;
}

}  // namespace

TEST_CASE("elements are resized as by a triangle filter, and never beyond their sources",
          "[data][resample]") {
  for (const Element element :
       {Element::u8, Element::u16, Element::i16, Element::f16, Element::f32})
    for (const std::size_t channels : {1u, 3u, 5u, 12u})
      for (const bool sparse : {false, true})
        for (const auto& [tall, across] :
             {std::pair{6u, 4u}, std::pair{13u, 9u}, std::pair{20u, 31u}}) {
          CAPTURE(choice_name(element), channels, sparse, tall, across);
          const Image image = image_of(element, channels, sparse);
          const DataSetInfo& info = image.info;
          const Axis rows{
              .begin = 0, .length = info.height, .target = tall, .first = 0, .count = tall},
              columns{
                  .begin = 0, .length = info.width, .target = across, .first = 0, .count = across};
          std::vector<std::uint8_t> plain(tall * across * info.pixel_bytes()), turned = plain;
          ValueResampler resampler;
          resampler.run(info, image.bytes.data(), rows, columns, false, plain.data());
          resampler.run(info, image.bytes.data(), rows, columns, true, turned.data());
          const double step = is_float(element) ? element == Element::f16 ? 0.2 : 1e-4 : 0.501;
          for_each_value(element, plain, [&](std::size_t i, float got) {
            const std::size_t c = i % channels, x = i / channels % across,
                              y = i / channels / across;
            double sum = 0, known = 0, low = 1e9, high = -1e9;
            bool none = false;
            for (std::size_t sy = 0; sy < info.height; ++sy)
              for (std::size_t sx = 0; sx < info.width; ++sx) {
                const double w =
                    weight(y, sy, info.height, tall) * weight(x, sx, info.width, across);
                if (w <= 0) continue;
                const float value = image.values[(sy * info.width + sx) * channels + c];
                none = none || stands_for_none(info.no_data, value);
                if (stands_for_none(info.no_data, value)) continue;
                sum += w * static_cast<double>(value);
                known += w;
                low = std::min(low, static_cast<double>(value));
                high = std::max(high, static_cast<double>(value));
              }
            if (stands_for_none(info.no_data, got)) {
              if (!none) FAIL("no data of data");
              return;
            }
            if (!(got >= low && got <= high)) FAIL("beyond its sources");
            if (!none && !(std::abs(got - sum / known) <= step)) FAIL("another mean");
          });
          const std::size_t pixel = info.pixel_bytes();
          for (std::size_t at = 0; at < plain.size(); at += pixel) {
            const std::size_t x = at / pixel % across, line = at / pixel / across * across;
            if (!std::equal(
                    plain.begin() + static_cast<std::ptrdiff_t>(at),
                    plain.begin() + static_cast<std::ptrdiff_t>(at + pixel),
                    turned.begin() + static_cast<std::ptrdiff_t>((line + across - 1 - x) * pixel)))
              FAIL("not mirrored");
          }
        }
  SUCCEED();
}

TEST_CASE("an image that keeps its size keeps its elements", "[data][resample]") {
  for (const Element element : {Element::u16, Element::i16, Element::f16, Element::f32}) {
    const Image image = image_of(element, 12, true);
    const DataSetInfo& info = image.info;
    std::vector<std::uint8_t> same(image.bytes.size());
    ValueResampler().run(
        info, image.bytes.data(),
        {.begin = 0,
         .length = info.height,
         .target = info.height,
         .first = 0,
         .count = info.height},
        {.begin = 0, .length = info.width, .target = info.width, .first = 0, .count = info.width},
        false, same.data());
    CHECK(same == image.bytes);
  }
}

}  // namespace lockstep::test::resample_values
