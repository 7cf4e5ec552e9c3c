// From bytes or floats to the input of the first convolution.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/emulated/fixture.hpp"

using namespace lockstep;
using namespace lockstep::cuda;
using namespace lockstep::test;

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
          normalise_bytes({bytes.data(), pixels, channels, 4, scale, shift}, storage, a.data(),
                          stream);
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
        normalise_bytes({bytes.data(), pixels, channels, padded, scale.data(), shift.data()},
                        Storage::fp32, out.data(), stream);
        return Outputs{out.read()};
      });
      std::vector<double> want(pixels * to);
      for (std::size_t i = 0; i < bytes.size(); ++i)
        want[i / from * to + i % from] = 0.5 * bytes[i] - 1;
      CHECK(got[0] == want);
    }
}
