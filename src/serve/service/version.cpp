#include "serve/service/version.hpp"

#include <utility>

#include <fmt/core.h>

#include "lockstep/data/image/image_codecs.hpp"
#include "serve/protocol/request_error.hpp"

namespace lockstep::serve {
namespace {

constexpr std::size_t longest_side = 65'535;  // of a JPEG

/// The number at this place of a PNG's first chunk, which is its size.
std::size_t big_endian(std::string_view file, std::size_t at) {
  std::size_t number = 0;
  for (const char byte : file.substr(at, 4))
    number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

struct Claimed {
  std::size_t height = 0, width = 0;
  std::size_t pixels() const { return height * width; }
};

/// The size that the file's header claims.
Claimed claimed(std::string_view file, const std::string& what) {
  constexpr std::size_t png_width_at = 16, png_height_at = 20, png_header = 24;
  if (data::looks_like_jpeg(file)) {
    const data::ImageShape shape = data::jpeg_shape(file, what);
    return {shape.height, shape.width};
  }
  const bool base64 = file.starts_with("/9j/") || file.starts_with("iVBORw0KGgo");
  expect(data::looks_like_png(file) && file.size() >= png_header,
         "{}: is neither a JPEG nor a PNG file{}", what,
         base64 ? ", but base64: send the file's bytes, as binary data" : "");
  return {big_endian(file, png_height_at), big_endian(file, png_width_at)};
}

/// How often a JPEG goes through its pixels, about: bytes of pixels may look like a marker.
std::size_t scans_of(std::string_view file) {
  std::size_t scans = 0;
  for (std::size_t at = 0; (at = file.find("\xff\xda", at)) != file.npos; at += 2) ++scans;
  return scans;
}

}  // namespace

Version::Version(const ModelSource& source, std::size_t number, const ModelFile& file,
                 const ServeSpec& spec)
    : name_(source.name),
      number_(std::to_string(number)),
      text_(source.text),
      input_(file.input),
      form_(spec.form),
      stored_(stored_as(spec.form, file.members.front().model.about.preparation, input_, 1)),
      most_pixels_(spec.most_pixels) {
  try {
    idle_.push_back(borrow());
  } catch (const InputError& error) {
    throw InputError(
        fmt::format("{}; --resize, --jpeg and so on are for all models of a server: another "
                    "server takes networks whose training sets were packed otherwise",
                    error.what()));
  }
}

std::unique_ptr<data::ImagePreparer> Version::borrow() const {
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      auto one = std::move(idle_.back());
      idle_.pop_back();
      return one;
    }
  }
  return std::make_unique<data::ImagePreparer>(form_, stored_.stored, stored_.augment);
}

double Version::cost_s(std::string_view file) {
  constexpr double pixel_s = 2e-8, pixel_of_a_scan_s = 5e-10, byte_s = 1e-8;
  const double bytes_s = byte_s * static_cast<double>(file.size());
  try {
    const auto pixels = static_cast<double>(claimed(file, "").pixels());
    const auto scans = static_cast<double>(data::looks_like_jpeg(file) ? scans_of(file) : 0);
    return bytes_s + pixels * (pixel_s + scans * pixel_of_a_scan_s);
  } catch (const InputError&) {  // it is an error, too
    return bytes_s;
  }
}

/// With an image of another size: what to do when the server starts.
std::string Version::hint(const std::string& fault) const {
  if (form_.height > 0 || form_.jpeg || fault.find("only images of") == fault.npos) return fault;
  return fault + ": start the server with --resize or --jpeg, as the training set was packed";
}

void Version::prepare(std::string_view file, const std::string& what,
                      std::span<std::uint8_t> row) const {
  try {
    const Claimed size = claimed(file, what);
    expect(size.height <= longest_side && size.width <= longest_side,
           "{}: is {} x {}, but a side has at most {} pixels", what, size.height, size.width,
           longest_side);
    expect(size.pixels() <= most_pixels_, "{}: has {} pixels, more than {}", what, size.pixels(),
           most_pixels_);
    // About what decoding takes: a scan costs a fortieth of making an image of all.
    const std::size_t scans = data::looks_like_jpeg(file) ? scans_of(file) : 0;
    expect(size.pixels() * (40 + scans) <= 160 * most_pixels_,
           "{}: has {} pixels in {} scans, which take too long to decode", what, size.pixels(),
           scans);
    auto preparer = borrow();
    preparer->prepare(file, what, row);
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(preparer));
  } catch (const RequestError&) {
    throw;
  } catch (const InputError& error) {
    throw RequestError(400, hint(error.what()));
  }
}

}  // namespace lockstep::serve
