// A JPEG of a shard, and which part of it is wanted: the last six bytes. What is decoded must be
// what decoding the whole image gives there.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "data/image_codecs.hpp"
#include "data/jpeg_region.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/data/image.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {
namespace {

constexpr std::size_t kRequest = 6, kLongest = 600;

data::Image noisy(std::size_t height, std::size_t width, std::size_t channels) {
  data::Image image{height, width, channels, std::vector<std::uint8_t>(height * width * channels)};
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(128 + 60 * (i / (width * channels) / 8 % 2) +
                                                draw(1, 0, i, Draw::synth) % 60 - i % 40);
  return image;
}

/// Height and width, where a frame says so.
std::optional<std::array<std::size_t, 2>> size_of(std::span<const std::uint8_t> file) {
  for (std::size_t i = 0; i + 8 < file.size(); ++i)
    if (file[i] == 0xFF && file[i + 1] >= 0xC0 && file[i + 1] <= 0xC2)
      return {{std::size_t{file[i + 5]} * 256 + file[i + 6],
               std::size_t{file[i + 7]} * 256 + file[i + 8]}};
  return std::nullopt;
}

void require_same(const data::Picture& part, const data::Box& box, const data::Image& whole) {
  for (std::size_t y = box.top; y < box.top + box.height; ++y)
    for (std::size_t x = box.left; x < box.left + box.width; ++x) {
      const std::uint8_t* got = part.pixels + (y - part.top) * part.stride + (x - part.left) * 4;
      const std::uint8_t* want = &whole.pixels[(y * whole.width + x) * whole.channels];
      require_law(std::equal(want, want + whole.channels, got), "a part is not that of the whole");
    }
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const std::size_t channels : {1, 3})
    for (const int quality : {30, 92}) {
      const std::string file = data::encode_jpeg(noisy(41, 53, channels), quality, "seed");
      for (const char reduction : {0, 1}) {
        const char request[kRequest] = {reduction, 9, 7, 20, 25, 0};
        all.push_back(file + std::string(request, kRequest));
      }
    }
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < kRequest) return;
  const auto file = bytes.first(bytes.size() - kRequest), wanted = bytes.last(kRequest);
  const auto size = size_of(file);
  if (!size || (*size)[0] > kLongest || (*size)[1] > kLongest) return;
  data::JpegRegion::Request request;
  request.height = (*size)[0];
  request.width = (*size)[1];
  request.grey = (wanted[0] & 4) != 0;
  request.reduction = std::size_t{1} << (wanted[0] & 3);
  const std::size_t tall = data::reduced(request.height, request.reduction);
  const std::size_t across = data::reduced(request.width, request.reduction);
  if (tall == 0 || across == 0) return;
  request.box.top = wanted[1] % tall;
  request.box.left = wanted[2] % across;
  request.box.height = 1 + wanted[3] % (tall - request.box.top);
  request.box.width = 1 + wanted[4] % (across - request.box.left);
  static data::JpegRegion region;
  const data::Picture part = region.decode(file, request);
  if (request.reduction == 1)
    require_same(part, request.box, data::decode_image(text_of(file), "image"));
}

}  // namespace lockstep::fuzz
