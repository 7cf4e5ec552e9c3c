#include "pack/pack_row.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/data/image/image_codecs.hpp"

namespace lockstep::pack {

data::Image read_image(const Source& source, const PackSpec& spec, std::size_t row) {
  const std::string file = spec.exif_orientation ? source.read_file(row) : "";
  return file.empty() ? source.read(row) : data::decode_turned(file, source.name(row), spec);
}

data::FormedImage prepare_row(const Source& source, const PackSpec& spec,
                              const data::DataSetInfo& info, std::size_t row) {
  if (!spec.jpeg)
    return data::bring_into(spec, info.channels, read_image(source, spec, row), {}, {});
  std::string file = source.read_file(row);
  const std::string name = source.name(row);
  data::Image image = file.empty() ? source.read(row) : data::decode_turned(file, name, spec);
  return data::bring_into(spec, info.channels, std::move(image), std::move(file), name);
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
