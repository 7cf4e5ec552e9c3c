#include "pack/pack_row.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/data/image/image_codecs.hpp"

namespace lockstep::pack {
namespace {

bool too_large(const data::Image& image, const PackSpec& spec) {
  return spec.short_side > 0 && std::min(image.height, image.width) > spec.short_side;
}

/// A JPEG goes into the shard as it is, unless it must be turned or become smaller or grey.
PackedRow prepare_jpeg(const Source& source, const PackSpec& spec, const data::DataSetInfo& info,
                       std::size_t row) {
  std::string file = source.read_file(row);
  data::Image image = file.empty() ? source.read(row) : data::decode_image(file, source.name(row));
  const int orientation = spec.exif_orientation ? data::exif_orientation(file) : 1;
  if (orientation != 1) image = data::upright(image, orientation);
  const bool grey_enough = info.channels == 3 || image.channels == 1;
  const bool as_it_is =
      data::looks_like_jpeg(file) && orientation == 1 && grey_enough && !too_large(image, spec);
  image = data::with_channels(std::move(image), info.channels);
  if (as_it_is) return {std::move(image), std::move(file)};
  if (too_large(image, spec)) {
    std::size_t height = image.height, width = image.width;
    data::resized(spec.short_side, height, width);
    image = data::resize(image, height, width);
  }
  file = data::encode_jpeg(image, spec.quality, source.name(row));
  return {std::move(image), std::move(file)};
}

}  // namespace

data::Image read_image(const Source& source, const PackSpec& spec, std::size_t row) {
  const std::string file = spec.exif_orientation ? source.read_file(row) : "";
  if (file.empty()) return source.read(row);
  return data::upright(data::decode_image(file, source.name(row)), data::exif_orientation(file));
}

PackedRow prepare_row(const Source& source, const PackSpec& spec, const data::DataSetInfo& info,
                      std::size_t row) {
  if (spec.jpeg) return prepare_jpeg(source, spec, info, row);
  data::Image image = data::with_channels(read_image(source, spec, row), info.channels);
  if (spec.height > 0) image = data::resize(image, info.height, info.width);
  return {std::move(image), {}};
}

std::size_t packed_row_bytes(const Source& source, const PackSpec& spec,
                             const data::DataSetInfo& info) {
  if (!spec.jpeg) return info.row_bytes();
  constexpr std::size_t looked_at = 64;
  const std::size_t count = std::min(looked_at, source.rows());
  std::size_t bytes = 0, readable = 0;
  for (std::size_t i = 0; i < count; ++i) {
    try {
      bytes += prepare_row(source, spec, info, source.rows() * i / count).jpeg.size();
      ++readable;
    } catch (const InputError&) {
      if (!spec.skip_bad) throw;
    }
  }
  return readable > 0 ? bytes / readable : 1;
}

}  // namespace lockstep::pack
