#include "lockstep/data/loading/image_preparer.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "data/augment/geometry.hpp"
#include "data/loading/row_maker.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace {

int orientation_of(std::string_view file, const ImageForm& form) {
  return form.exif_orientation ? exif_orientation(file) : 1;
}

bool too_large(const ImageShape& shape, const ImageForm& form) {
  return form.short_side > 0 && std::min(shape.height, shape.width) > form.short_side;
}

/// A JPEG is stored as it is, unless it must be turned or become smaller or grey.
bool stays(std::string_view file, const ImageShape& shape, const ImageForm& form,
           std::size_t channels) {
  const bool grey_enough = channels == 3 || shape.channels == 1;
  return looks_like_jpeg(file) && orientation_of(file, form) == 1 && grey_enough &&
         !too_large(shape, form);
}

}  // namespace

Image decode_turned(std::string_view file, const std::string& name, const ImageForm& form) {
  Image image = decode_image(file, name);
  const int orientation = orientation_of(file, form);
  return orientation == 1 ? std::move(image) : upright(image, orientation);
}

FormedImage bring_into(const ImageForm& form, std::size_t channels, Image image, std::string file,
                       const std::string& name) {
  const ImageShape shape{image.height, image.width, image.channels};
  image = with_channels(std::move(image), channels);
  if (!form.jpeg) {
    if (form.height > 0) image = resize(image, form.height, form.width);
    return {std::move(image), {}};
  }
  if (stays(file, shape, form, channels)) return {std::move(image), std::move(file)};
  if (too_large(shape, form)) {
    std::size_t height = image.height, width = image.width;
    resized(form.short_side, height, width);
    image = resize(image, height, width);
  }
  file = encode_jpeg(image, form.quality, name);
  return {std::move(image), std::move(file)};
}

struct ImagePreparer::Impl {
  ImageForm form;
  std::size_t height, width, channels;  // as stored; height and width are 0 for JPEGs
  RowMaker maker;

  Impl(const ImageForm& how, const DataSetInfo& stored, const AugmentSpec& spec)
      : form(how),
        height(stored.height),
        width(stored.width),
        channels(stored.channels),
        maker(stored, spec, "the images") {
    check(stored.has_plain_bytes(), "images that come as files have pixels of uint8");
    check(form.jpeg == (stored.encoding == Encoding::jpeg), "the form of the data set's rows");
    check(spec.crop == Crop::centre && !spec.flip && spec.cutout == 0 && !spec.effects.any(),
          "a preparation in which nothing is random");
  }

  void prepare(std::string_view file, const std::string& name, std::uint8_t* row) {
    if (form.jpeg && looks_like_jpeg(file)) {
      const ImageShape shape = jpeg_shape(file, name);
      if (stays(file, shape, form, channels)) return from_jpeg(file, shape, name, row);
    }
    auto [image, jpeg] =
        bring_into(form, channels, decode_turned(file, name, form), std::string(file), name);
    if (form.jpeg) return from_jpeg(jpeg, {image.height, image.width, channels}, name, row);
    require(image.height == height && image.width == width,
            fmt::format("{}: is {} x {}, but only images of {} x {} (height x width) can be taken",
                        name, image.height, image.width, height, width));
    image.pixels.resize(image.pixels.size() + resample_slack);
    maker.from_pixels(0, 0, image.pixels.data(), row);
  }

  void from_jpeg(std::string_view file, const ImageShape& shape, const std::string& name,
                 std::uint8_t* row) {
    const std::span bytes(reinterpret_cast<const std::uint8_t*>(file.data()), file.size());
    try {
      maker.from_jpeg(0, 0, bytes, shape.height, shape.width, row);
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: {}", name, error.what()));
    }
  }
};

ImagePreparer::ImagePreparer(const ImageForm& form, const DataSetInfo& stored,
                             const AugmentSpec& spec)
    : impl_(std::make_unique<Impl>(form, stored, spec)) {}
ImagePreparer::~ImagePreparer() = default;
ImagePreparer::ImagePreparer(ImagePreparer&&) noexcept = default;

std::size_t ImagePreparer::row_bytes() const { return impl_->maker.row_bytes(); }

void ImagePreparer::prepare(std::string_view file, const std::string& name,
                            std::span<std::uint8_t> row) {
  check(row.size() == row_bytes(), "room for one row");
  impl_->prepare(file, name, row.data());
}

}  // namespace lockstep::data
