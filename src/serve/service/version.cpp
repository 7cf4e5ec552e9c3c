#include "serve/service/version.hpp"

#include <utility>

#include <fmt/core.h>

#include "lockstep/data/image/image_codecs.hpp"
#include "serve/protocol/request_error.hpp"

namespace lockstep::serve {
namespace {

/// The number at this place of a PNG's first chunk, which is its size.
std::size_t big_endian(std::string_view file, std::size_t at) {
  std::size_t number = 0;
  for (const char byte : file.substr(at, 4))
    number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

/// The pixels that the file's header claims.
std::size_t claimed_pixels(std::string_view file, const std::string& what) {
  constexpr std::size_t png_width_at = 16, png_height_at = 20, png_header = 24;
  if (data::looks_like_jpeg(file)) {
    const data::ImageShape shape = data::jpeg_shape(file, what);
    return shape.height * shape.width;
  }
  expect(data::looks_like_png(file) && file.size() >= png_header,
         "{}: is neither a JPEG nor a PNG file", what);
  return big_endian(file, png_width_at) * big_endian(file, png_height_at);
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
  idle_.push_back(borrow());
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

void Version::prepare(std::string_view file, const std::string& what,
                      std::span<std::uint8_t> row) const {
  try {
    const std::size_t pixels = claimed_pixels(file, what);
    expect(pixels <= most_pixels_, "{}: has {} pixels, more than {}", what, pixels, most_pixels_);
    auto preparer = borrow();
    preparer->prepare(file, what, row);
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(preparer));
  } catch (const RequestError&) {
    throw;
  } catch (const InputError& error) {
    throw RequestError(400, error.what());
  }
}

}  // namespace lockstep::serve
