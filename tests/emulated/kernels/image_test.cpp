// From bytes or floats to the input of the first convolution.
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>

#include "lockstep/base/half.hpp"
#include "ports/cuda/kernels/image/fold.hpp"
#include "tests/emulated/fixture.hpp"

using namespace lockstep;
using namespace lockstep::cuda;
using namespace lockstep::test;

namespace {

/// The first convolution of a test, of every second pixel of an odd number.
Fold fold_of_squares(std::size_t side, int channels, int padded) {
  const auto pixels = static_cast<int>(side);
  return {.outputs = 1,
          .kernel = 3,
          .stride = 2,
          .padding = 1,
          .out_height = (pixels + 1) / 2,
          .out_width = (pixels + 1) / 2,
          .height = pixels,
          .width = pixels,
          .channels = channels,
          .padded = padded};
}

}  // namespace

TEST_CASE("images are normalised and padded to four channels with zeros, every storage",
          "[kernel]") {
  for (const Storage storage : all_storages)
    for (const int channels : {1, 2, 3, 4})
      for (const std::size_t pixels : {std::size_t{1}, std::size_t{77}, std::size_t{1000}}) {
        INFO(to_string(storage) << ", " << pixels << " x " << channels);
        const std::size_t count = pixels * static_cast<std::size_t>(channels);
        std::vector<std::uint8_t> bytes(count);
        std::vector<float> floats(count);
        for (std::size_t i = 0; i < count; ++i) {
          bytes[i] = static_cast<std::uint8_t>(i * 37);
          floats[i] = static_cast<float>(bytes[i]) / 100 - 1;
        }
        floats.back() = NAN;
        const float scale[] = {0.01f, 0.02f, -0.03f, 0.04f}, shift[] = {-1, 0, 1, 2};
        const Outputs got = in_every_order([&](cudaStream_t stream) {
          Values a(storage, pixels * 4), b(storage, pixels * 4);
          normalise_elements(data::Element::u8, {bytes.data(), pixels, channels, 4, scale, shift},
                             storage, a.data(), stream);
          convert_floats({floats.data(), pixels, channels, 4, scale, shift}, storage, b.data(),
                         stream);
          return Outputs{a.read(), b.read()};
        });
        std::vector<double> a(pixels * 4), b(pixels * 4);
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t c = i % static_cast<std::size_t>(channels);
          const std::size_t to = i / static_cast<std::size_t>(channels) * 4 + c;
          a[to] = static_cast<double>(bytes[i]) * double{scale[c]} + double{shift[c]};
          b[to] = double{floats[i]};
        }
        check_near(got[0], a, precision_of(storage) + 1e-6, "bytes");
        check_near(got[1], b, precision_of(storage), "floats");
      }
}

TEST_CASE("images are padded to any multiple of four channels", "[kernel]") {
  for (const int padded : {8, 12, 20})
    for (const int channels : {3, 7}) {
      INFO(channels << " to " << padded);
      constexpr std::size_t pixels = 301;
      const auto from = static_cast<std::size_t>(channels), to = static_cast<std::size_t>(padded);
      std::vector<std::uint8_t> bytes(pixels * from);
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37);
      const std::vector<float> scale(from, 0.5f), shift(from, -1);
      const Outputs got = in_every_order([&](cudaStream_t stream) {
        Values out(Storage::fp32, pixels * to);
        normalise_elements(data::Element::u8,
                           {bytes.data(), pixels, channels, padded, scale.data(), shift.data()},
                           Storage::fp32, out.data(), stream);
        return Outputs{out.read()};
      });
      std::vector<double> want(pixels * to);
      for (std::size_t i = 0; i < bytes.size(); ++i)
        want[i / from * to + i % from] = 0.5 * bytes[i] - 1;
      CHECK(got[0] == want);
    }
}

TEST_CASE("elements that stand for no data become 0, plain and folded", "[kernel][elements]") {
  constexpr std::size_t side = 9, pixels = side * side, channels = 5;
  for (const bool is_nan : {false, true}) {
    std::vector<float> values(pixels * channels), entered;
    std::vector<std::uint16_t> numbers(values.size());
    std::vector<std::uint8_t> bytes(values.size());
    const float none = is_nan ? NAN : 7, mean[channels] = {1, 2, 3, 4, 5},
                inverse[channels] = {0.5f, 1, 2, 4, 8};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool missing = i % 4 == 1;
      bytes[i] = static_cast<std::uint8_t>(missing ? 7 : i % 100 + 8);
      numbers[i] = bytes[i];
      values[i] = missing ? none : bytes[i];
      entered.push_back(missing ? 0 : (values[i] - mean[i % channels]) * inverse[i % channels]);
    }
    const Fold fold = fold_of_squares(side, channels, 8);
    const std::size_t folded =
        fold.folded_pixels() * static_cast<std::size_t>(fold.folded_channels());
    const auto made = [&](const ImageInput& in, std::optional<data::Element> element) {
      return in_every_order([&](cudaStream_t stream) {
        Values plain(Storage::fp32, pixels * 8), cells(Storage::fp32, folded);
        if (element) {
          normalise_elements(*element, in, Storage::fp32, plain.data(), stream);
          fold_elements(*element, in, fold, Storage::fp32, cells.data(), stream);
        } else {
          convert_floats(in, Storage::fp32, plain.data(), stream);
          fold_floats(in, fold, Storage::fp32, cells.data(), stream);
        }
        return Outputs{plain.read(), cells.read()};
      });
    };
    const auto want = made({entered.data(), pixels, channels, 8, nullptr, nullptr}, std::nullopt);
    CHECK(made({values.data(), pixels, channels, 8, mean, inverse, true, none},
               data::Element::f32) == want);
    if (is_nan) continue;
    CHECK(made({numbers.data(), pixels, channels, 8, mean, inverse, true, none},
               data::Element::u16) == want);
    const auto of_bytes =
        made({bytes.data(), pixels, channels, 8, inverse, mean, true, none}, data::Element::u8);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      CHECK(of_bytes[0][i / channels * 8 + i % channels] ==
            (i % 4 == 1 ? 0
                        : static_cast<double>(static_cast<float>(bytes[i]) * inverse[i % channels] +
                                              mean[i % channels])));
  }
}

TEST_CASE("every element is normalised by subtraction and 1 / deviation, plain and folded",
          "[kernel][elements]") {
  constexpr std::size_t side = 9, images = 2, pixels = images * side * side;
  const auto require_entered = [&]<class T>(data::Element element, T of) {
    for (const Storage storage : all_storages)
      for (const int channels : {3, 12, 13, 64}) {
        INFO(choice_name(element) << ", " << to_string(storage) << ", " << channels);
        const auto count = static_cast<std::size_t>(channels);
        std::vector<std::uint16_t> halves(pixels * count);
        std::vector<float> wide(pixels * count), mean(count), inverse(count), entered;
        for (std::size_t i = 0; i < wide.size(); ++i) {
          halves[i] = static_cast<std::uint16_t>(i * 7919 % 0x7c00);
          wide[i] = 1e7f + static_cast<float>(i % 64);
        }
        for (std::size_t c = 0; c < count; ++c) {
          mean[c] = (element == data::Element::f32 ? 1e7f : 100) + static_cast<float>(c);
          inverse[c] = 1 / (20.f + static_cast<float>(c));
        }
        for (std::size_t i = 0; i < wide.size(); ++i)
          entered.push_back((of(halves[i], wide[i]) - mean[i % count]) * inverse[i % count]);
        const void* stored =
            element == data::Element::f32 ? static_cast<const void*>(wide.data()) : halves.data();
        const int padded = (channels + 3) / 4 * 4;
        const ImageInput in{stored, pixels, channels, padded, mean.data(), inverse.data()},
            floats{entered.data(), pixels, channels, padded, nullptr, nullptr};
        const Fold fold = fold_of_squares(side, channels, padded);
        const std::size_t folded =
            images * fold.folded_pixels() * static_cast<std::size_t>(fold.folded_channels());
        const auto made = [&](bool elements) {
          return in_every_order([&](cudaStream_t stream) {
            Values plain(storage, pixels * static_cast<std::size_t>(padded)),
                cells(storage, folded);
            if (elements) {
              normalise_elements(element, in, storage, plain.data(), stream);
              fold_elements(element, in, fold, storage, cells.data(), stream);
            } else {
              convert_floats(floats, storage, plain.data(), stream);
              fold_floats(floats, fold, storage, cells.data(), stream);
            }
            return Outputs{plain.read(), cells.read()};
          });
        };
        CHECK(made(true) == made(false));
      }
  };
  require_entered(data::Element::u16, [](std::uint16_t bits, float) { return float(bits); });
  require_entered(data::Element::i16,
                  [](std::uint16_t bits, float) { return float(static_cast<std::int16_t>(bits)); });
  require_entered(data::Element::f16, [](std::uint16_t bits, float) { return widen_f16(bits); });
  require_entered(data::Element::f32, [](std::uint16_t, float value) { return value; });
}

TEST_CASE("elements enter between limits and on a curve as data::shaped says, plain and folded",
          "[kernel][elements]") {
  constexpr std::size_t side = 9, pixels = side * side;
  const auto require_entered = [&]<class T>(data::Element element, T) {
    for (const int channels : {1, 3, 12, 13})
      for (const data::Curve curve : {data::Curve::linear, data::Curve::log1p, data::Curve::asinh})
        for (const bool sparse : {false, true}) {
          INFO(choice_name(element) << ", " << channels << ", " << choice_name(curve));
          const auto count = static_cast<std::size_t>(channels);
          std::vector<float> mean(count), inverse(count), low(count), high(count), entered;
          std::vector<T> stored(pixels * count);
          for (std::size_t c = 0; c < count; ++c) {
            mean[c] = static_cast<float>(c) / 4;
            inverse[c] = 1 / (2.f + static_cast<float>(c));
            low[c] = static_cast<float>(c);
            high[c] = 50 + static_cast<float>(c);
          }
          for (std::size_t i = 0; i < stored.size(); ++i) {
            const std::size_t c = i % count;
            const bool is_half = element == data::Element::f16;
            stored[i] = static_cast<T>(is_half ? 0x3c00 + i * 37 % 0x2000 : i * 7 % 120);
            const float value = is_half ? widen_f16(static_cast<std::uint16_t>(stored[i]))
                                        : static_cast<float>(stored[i]);
            entered.push_back(sparse && value == 7
                                  ? 0
                                  : (data::shaped(curve, value, low[c], high[c]) - mean[c]) *
                                        inverse[c]);
          }
          const int padded = (channels + 3) / 4 * 4;
          const ImageInput in{stored.data(), pixels,         channels,   padded,
                              mean.data(),   inverse.data(), sparse,     7,
                              curve,         low.data(),     high.data()},
              floats{entered.data(), pixels, channels, padded, nullptr, nullptr};
          const Fold fold = fold_of_squares(side, channels, padded);
          const std::size_t folded =
              fold.folded_pixels() * static_cast<std::size_t>(fold.folded_channels());
          const auto made = [&](bool elements) {
            return in_every_order([&](cudaStream_t stream) {
              Values plain(Storage::fp32, pixels * static_cast<std::size_t>(padded)),
                  cells(Storage::fp32, folded);
              if (elements) {
                normalise_elements(element, in, Storage::fp32, plain.data(), stream);
                fold_elements(element, in, fold, Storage::fp32, cells.data(), stream);
              } else {
                convert_floats(floats, Storage::fp32, plain.data(), stream);
                fold_floats(floats, fold, Storage::fp32, cells.data(), stream);
              }
              return Outputs{plain.read(), cells.read()};
            });
          };
          CHECK(made(true) == made(false));
        }
  };
  require_entered(data::Element::u8, std::uint8_t{});
  require_entered(data::Element::u16, std::uint16_t{});
  require_entered(data::Element::i16, std::int16_t{});
  require_entered(data::Element::f16, std::uint16_t{});
  require_entered(data::Element::f32, float{});
}
