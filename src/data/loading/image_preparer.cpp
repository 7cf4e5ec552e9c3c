#include "lockstep/data/loading/image_preparer.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "data/augment/geometry.hpp"
#include "data/image/pixels/resample.hpp"
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

bool takes_files(const DataSetInfo& stored) {
  return (stored.element == Element::u8 || stored.element == Element::u16) &&
         (stored.channels == 1 || stored.channels == 3);
}

Image decode_turned(std::string_view file, const std::string& name, const ImageForm& form,
                    Element element) {
  Image image = decode_image(file, name, element);
  const int orientation = orientation_of(file, form);
  return orientation == 1 ? std::move(image) : upright(image, orientation);
}

namespace {

/// Bytes by the fast filter; other elements, and values among which some are no data, by value.
Image stretched(const ImageForm& form, const DataSetInfo& stored, const Image& image) {
  if (image.height == form.height && image.width == form.width) return image;
  if (image.element == Element::u8 && !stored.no_data)
    return resize(image, form.height, form.width);
  DataSetInfo from = stored;
  from.height = image.height;
  from.width = image.width;
  Image out{form.height, form.width, image.channels, {}, image.element};
  out.pixels.resize(form.height * form.width * from.pixel_bytes());
  const auto axis = [](std::size_t length, std::size_t wanted) {
    return Axis{.begin = 0, .length = length, .target = wanted, .first = 0, .count = wanted};
  };
  ValueResampler().run(from, image.pixels.data(), axis(image.height, form.height),
                       axis(image.width, form.width), false, out.pixels.data());
  return out;
}

}  // namespace

FormedImage bring_into(const ImageForm& form, const DataSetInfo& stored, Image image,
                       std::string file, const std::string& name) {
  const ImageShape shape{image.height, image.width, image.channels};
  image = with_channels(std::move(image), stored.channels);
  if (!form.jpeg) {
    if (form.height > 0) image = stretched(form, stored, image);
    return {std::move(image), {}};
  }
  if (stays(file, shape, form, stored.channels)) return {std::move(image), std::move(file)};
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
  DataSetInfo stored;
  RowMaker maker;

  Impl(const ImageForm& how, const DataSetInfo& kind, const AugmentSpec& spec)
      : form(how), stored(kind), maker(stored, spec, "the images") {
    check(takes_files(stored), "images that come as files");
    check(form.jpeg == (stored.encoding == Encoding::jpeg), "the form of the data set's rows");
    check(spec.crop == Crop::centre && !spec.flip && spec.cutout == 0 && !spec.effects.any(),
          "a preparation in which nothing is random");
  }

  void prepare(std::string_view file, const std::string& name, std::uint8_t* row) {
    if (form.jpeg && looks_like_jpeg(file)) {
      const ImageShape shape = jpeg_shape(file, name);
      if (stays(file, shape, form, stored.channels)) return from_jpeg(file, shape, name, row);
    }
    auto [image, jpeg] = bring_into(form, stored, decode_turned(file, name, form, stored.element),
                                    std::string(file), name);
    if (form.jpeg) return from_jpeg(jpeg, {image.height, image.width, stored.channels}, name, row);
    require(image.height == stored.height && image.width == stored.width,
            fmt::format("{}: is {} x {}, but only images of {} x {} (height x width) can be taken",
                        name, image.height, image.width, stored.height, stored.width));
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
