#include "data/shard/shard_skeleton.hpp"

#include "data/shard/shard_file.hpp"
#include "lockstep/base/h5.hpp"
#include "lockstep/base/h5_writer.hpp"

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

Places reserve_rows(h5::Writer& file, const DataSetInfo& info, std::size_t rows,
                    std::size_t jpeg_bytes) {
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
  return places;
}

}  // namespace

Places write_skeleton(const std::filesystem::path& file, const std::filesystem::path& path,
                      const DataSetInfo& info, std::size_t rows, std::uint64_t jpeg_bytes) {
  const h5::Session session;
  h5::Writer writer =
      h5::Writer::on_disk(file, path, least_jpeg_bytes);  // the pixels begin at a page
  write_attributes(writer, info);
  writer.data_set("classes", info.classes, h5::Ending::padding);
  Places places = reserve_rows(writer, info, rows, jpeg_bytes);
  writer.close();
  places.end = std::filesystem::file_size(file);
  return places;
}

}  // namespace lockstep::data
