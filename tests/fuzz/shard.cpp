// A shard's file: it is refused, or some of its rows are read.
#include "lockstep/data/shard.hpp"
#include "data/image_codecs.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/data/row_reader.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {
namespace {

constexpr std::size_t kRows = 5;

data::DataSetInfo info_of(data::Encoding encoding) {
  data::DataSetInfo info;
  info.encoding = encoding;
  if (encoding == data::Encoding::raw) info.height = info.width = 8;
  info.channels = 3;
  info.classes = {"one", "two"};
  info.mean = info.stddev = {0.5f, 0.4f, 0.3f};
  return info;
}

const Scratch& scratch() {
  static const Scratch folder;
  return folder;
}

std::string shard_of(data::Encoding encoding) {
  const auto path = scratch().path() / "seed.h5";
  const data::Image image{8, 8, 3, std::vector<std::uint8_t>(192, 77)};
  const std::string jpeg = data::encode_jpeg(image, 90, "seed");
  data::ShardWriter writer(path, info_of(encoding), kRows);
  for (std::size_t row = 0; row < kRows; ++row) {
    if (encoding == data::Encoding::raw)
      writer.write(image.pixels, row % 2);
    else
      writer.write_jpeg({reinterpret_cast<const std::uint8_t*>(jpeg.data()), jpeg.size()}, 8, 8,
                        row % 2);
  }
  writer.finish();
  return read_text(path);
}

}  // namespace

std::vector<std::string> seeds() {
  return {shard_of(data::Encoding::raw), shard_of(data::Encoding::jpeg)};
}

void one(std::span<const std::uint8_t> bytes) {
  const data::DataSet rows(scratch().write("shard.h5", bytes));
  data::AugmentSpec how;
  if (rows.info().encoding == data::Encoding::jpeg) {
    how.crop = data::Crop::random_resized;
    how.height = how.width = 8;
  } else if (rows.info().row_bytes() > 1 << 24) {
    return;
  }
  data::RowReader reader(rows, how);
  std::vector<std::uint8_t> image(reader.row_bytes());
  for (std::size_t row = 0; row < std::min(rows.info().rows, kRows); ++row) {
    try {
      reader.read(0, row, image);
    } catch (const data::BadRow&) {
    }
  }
}

}  // namespace lockstep::fuzz
