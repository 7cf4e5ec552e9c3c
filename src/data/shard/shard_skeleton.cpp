#include "data/shard/shard_skeleton.hpp"

#include "data/bytes/row_names.hpp"
#include "data/shard/shard_file.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/files/h5_writer.hpp"

namespace lockstep::data {
namespace {

void write_attributes(h5::Writer& file, const DataSetInfo& info) {
  const bool raw = info.encoding == Encoding::raw;
  const std::int32_t version = raw ? shard_version : jpeg_shard_version;
  file.attribute("format", {}, raw ? shard_format : jpeg_shard_format, h5::Ending::padding);
  file.attribute("format_version", {}, &version);
  file.attribute("mean", {&info.channels, 1}, info.mean.data());
  file.attribute("stddev", {&info.channels, 1}, info.stddev.data());
}

Places reserve_rows(h5::Writer& file, const ShardLayout& layout) {
  const DataSetInfo& info = layout.info;
  const std::size_t rows = layout.rows, jpeg_bytes = layout.jpeg_bytes;
  Places places;
  if (info.encoding == Encoding::jpeg) {
    const std::size_t offsets = rows + 1, sizes[] = {rows, 2};
    places.images = file.reserve<std::uint8_t>("jpegs", {&jpeg_bytes, 1});
    places.offsets = file.reserve<std::uint64_t>("offsets", {&offsets, 1});
    places.sizes = file.reserve<std::uint16_t>("sizes", sizes);
  } else {
    const std::size_t shape[] = {rows, info.height, info.width, info.channels};
    places.images = file.reserve<std::uint8_t>("images", shape);
  }
  places.labels = file.reserve<std::int32_t>("labels", {&rows, 1});
  places.crcs = file.reserve<std::uint32_t>("crc32c", {&rows, 1});
  if (layout.name_bytes > 0)
    places.names = file.reserve_texts(file_names_item, rows, layout.name_bytes);
  return places;
}

}  // namespace

Places write_skeleton(const std::filesystem::path& file, const std::filesystem::path& path,
                      const ShardLayout& layout) {
  const h5::Session session;
  h5::Writer writer =
      h5::Writer::on_disk(file, path, least_jpeg_bytes);  // the pixels begin at a page
  write_attributes(writer, layout.info);
  writer.data_set("classes", layout.info.classes, h5::Ending::padding);
  Places places = reserve_rows(writer, layout);
  writer.close();
  places.end = std::filesystem::file_size(file);
  return places;
}

}  // namespace lockstep::data
