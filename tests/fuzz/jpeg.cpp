// Fuzzes a JPEG of a shard; the last six bytes say which part of it is wanted. The decoded part
// must equal the same part of the whole image as libjpeg decodes it.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "data/image/jpeg/jpeg_codec.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/data/image/image.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {
namespace {

constexpr std::size_t request_bytes = 6, longest_input = 600;

data::Image noisy(std::size_t height, std::size_t width, std::size_t channels) {
  data::Image image{height, width, channels, std::vector<std::uint8_t>(height * width * channels)};
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(128 + 60 * (i / (width * channels) / 8 % 2) +
                                                draw(1, 0, i, Draw::synth) % 60 - i % 40);
  return image;
}

/// Height and width, if a frame header gives them.
std::optional<std::array<std::size_t, 2>> size_of(std::span<const std::uint8_t> file) {
  for (std::size_t i = 0; i + 8 < file.size(); ++i)
    if (file[i] == 0xFF && file[i + 1] >= 0xC0 && file[i + 1] <= 0xC2)
      return {{std::size_t{file[i + 5]} * 256 + file[i + 6],
               std::size_t{file[i + 7]} * 256 + file[i + 8]}};
  return std::nullopt;
}

/// Gives libjpeg a file a few bytes at a time. Its Huffman decoder for long pieces leaves invented
/// coefficients (-1) in broken data; the decoder for short pieces is the reference.
struct SmallPieces {
  jpeg_source_mgr manager{};  // first: libjpeg's pointer to it points to this struct
  std::span<const std::uint8_t> left;

  explicit SmallPieces(std::span<const std::uint8_t> file) : left(file) {
    manager.init_source = manager.term_source = [](j_decompress_ptr) {};
    manager.resync_to_restart = jpeg_resync_to_restart;
    manager.fill_input_buffer = [](j_decompress_ptr codec) {
      reinterpret_cast<SmallPieces*>(codec->src)->fill();
      return TRUE;
    };
    manager.skip_input_data = [](j_decompress_ptr codec, long bytes) {
      reinterpret_cast<SmallPieces*>(codec->src)->skip(bytes);
    };
  }
  void fill() {
    static const std::uint8_t end[] = {0xFF, JPEG_EOI};
    const std::size_t bytes = std::min<std::size_t>(left.size(), 60);
    manager.next_input_byte = bytes > 0 ? left.data() : end;
    manager.bytes_in_buffer = bytes > 0 ? bytes : sizeof end;
    left = left.subspan(bytes);
  }
  void skip(long bytes) {
    const auto here = std::min<std::size_t>(static_cast<std::size_t>(std::max(0l, bytes)),
                                            manager.bytes_in_buffer);
    manager.next_input_byte += here;
    manager.bytes_in_buffer -= here;
    left =
        left.subspan(std::min(left.size(), static_cast<std::size_t>(std::max(0l, bytes)) - here));
  }
};

/// [height, width, 4]; nothing if libjpeg finds an error anywhere in the image.
std::optional<std::vector<std::uint8_t>> decode_whole(std::span<const std::uint8_t> file,
                                                      std::size_t height, std::size_t width) {
  static data::jpeg::OwnDecoder own;
  data::jpeg::Decoder& decoder = own.for_file(file);
  const data::jpeg::AtRest at_rest{decoder.codec};
  SmallPieces pieces(file);
  std::vector<std::uint8_t> pixels(height * width * 4);
  std::uint8_t* const to = pixels.data();
  SmallPieces* const source = &pieces;
  const bool whole = data::jpeg::guarded(decoder, [=](jpeg_decompress_struct& codec) {
    codec.src = &source->manager;
    jpeg_read_header(&codec, TRUE);
    codec.out_color_space = codec.num_components == 4 ? JCS_CMYK : JCS_EXT_RGBX;
    codec.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&codec);
    while (codec.output_scanline < codec.output_height) {
      JSAMPROW row = to + codec.output_scanline * width * 4;
      jpeg_read_scanlines(&codec, &row, 1);
    }
  });
  const bool cmyk = decoder.codec.out_color_space == JCS_CMYK;
  decoder.codec.src = nullptr;  // else libjpeg would treat it as its own
  if (!whole) return std::nullopt;
  if (cmyk) data::jpeg::rgb_from_inverted_cmyk(to, to, height * width, 4);
  return pixels;
}

void require_same(const data::Picture& part, const data::Box& box, std::size_t width,
                  const std::vector<std::uint8_t>& whole) {
  for (std::size_t y = box.top; y < box.top + box.height; ++y)
    for (std::size_t x = box.left; x < box.left + box.width; ++x) {
      const std::uint8_t* got = part.pixels + (y - part.top) * part.stride + (x - part.left) * 4;
      const std::uint8_t* want = &whole[(y * width + x) * 4];
      require_law(std::equal(want, want + 3, got), "a part is not that of the whole");
    }
}

/// Grey, of 40 x 40 pixels, with a table for AC coefficients that has no codes.
std::string without_codes() {
  const auto segment = [](char marker, const std::string& content) {
    return std::string("\xFF") + marker + '\0' + static_cast<char>(content.size() + 2) + content;
  };
  const std::string one_code = '\1' + std::string(16, '\0');
  return "\xFF\xD8" + segment('\xDB', '\0' + std::string(64, '\1')) +
         segment('\xC0', std::string("\x08\0\x28\0\x28\1\1\x11\0", 9)) +
         segment('\xC4', '\0' + one_code) + segment('\xC4', '\x11' + std::string(16, '\0')) +
         segment('\xDA', std::string("\1\1\1\0\x3F\0", 6)) + std::string(64, '\0') + "\xFF\xD9";
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all{without_codes() + std::string(request_bytes, '\7')};
  for (const std::size_t channels : {1, 3})
    for (const int quality : {30, 92}) {
      const std::string file = data::encode_jpeg(noisy(41, 53, channels), quality, "seed");
      for (const char reduction : {0, 1}) {
        const char request[request_bytes] = {reduction, 9, 7, 20, 25, 0};
        all.push_back(file + std::string(request, request_bytes));
      }
    }
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < request_bytes) return;
  const auto file = bytes.first(bytes.size() - request_bytes), wanted = bytes.last(request_bytes);
  const auto size = size_of(file);
  if (!size || (*size)[0] > longest_input || (*size)[1] > longest_input) return;
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
  // One for each input: its tables begin as what the heap holds, and not as the last file's.
  const auto region = std::make_unique<data::JpegRegion>();
  const data::Picture part = region->decode(file, request);
  if (request.reduction > 1) return;
  if (const auto whole = decode_whole(file, request.height, request.width))
    require_same(part, request.box, request.width, *whole);
}

}  // namespace lockstep::fuzz
