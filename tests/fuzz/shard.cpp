// Fuzzes HDF5 files as other programs write them, shards and others: each is an error, or some of
// its rows are read. HDF5 itself makes the file from the first bytes of the input; the other bytes
// replace the contents of its attributes, data sets and chunks. So the structure of the file is
// always valid: on an invalid one, HDF5 1.10 reads memory that it has freed, which we cannot
// repair.
#include "lockstep/data/shard/data_set.hpp"

#include "lockstep/data/loading/row_reader.hpp"
#include "tests/fuzz/hdf5_file.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {
namespace {

constexpr std::size_t row_count = 3, most_pixels = 360'000;

data::AugmentSpec how_to_shape(const data::DataSetInfo& info, unsigned how) {
  data::AugmentSpec spec;
  const bool jpeg = info.encoding == data::Encoding::jpeg;
  if (jpeg || how % 2 != 0) {
    spec.crop = how % 4 < 2 ? data::Crop::random_resized : data::Crop::random;
    spec.height = spec.width = 8;
    if (spec.crop == data::Crop::random) spec.short_side = 9;
  }
  spec.flip = how % 8 > 3;
  return spec;
}

void read_rows(const data::DataSet& rows, unsigned how) {
  data::RowReader reader(rows, how_to_shape(rows.info(), how));
  std::vector<std::uint8_t> image(reader.row_bytes());
  for (std::size_t row = 0; row < std::min(rows.info().rows, row_count); ++row) {
    if (rows.info().encoding == data::Encoding::jpeg) {
      const auto [height, width] = rows.size(row);
      if (height * width > most_pixels) continue;  // possible, but slow
    }
    try {
      reader.read(0, row, image);
    } catch (const InputError&) {
    }
  }
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  const auto add = [&](std::vector<int> bytes) {
    std::string text;
    for (const int byte : bytes) text += static_cast<char>(byte);
    all.push_back(text + std::string(40, 3));
  };
  constexpr int sums = 128;
  for (const int how : {0, 9, 22}) {
    add({how, 0, 4, 7, 7, 2, 0, 0, 0, 0, 0, 0, sums});           // a shard of pixels
    add({how, 1, 4, 0, 0, 2, 0, 0, 0, 0, 0, 0, sums});           // of JPEGs
    add({how, 2, 4, 7, 7, 2, 0, 0, 0, 0, 4, 0, 0});              // another program's
    add({how, 2, 4, 7, 7, 2, 135, 0, 0, 0, 1 + 8, 0, 0});        // floats, channels first
    add({how, 0, 4, 7, 7, 2, 0, 4, 0, 1, 0, 0, 0});              // plain chunks
    add({how, 2, 4, 7, 7, 2, 0, 4 + 8 * 7, 0, 1, 2, 255, 127});  // and filtered ones
    add({how, 2, 4, 7, 7, 2, 0, 4 + 8 * 16, 0, 129, 0, 255, 127});
  }
  for (int item = 1; item <= 10; ++item)
    for (int way = 0; way < 5; ++way)
      for (const int kind : {0, 1}) add({0, kind, 4, 7, 7, 2, 0, 0, item + 16 * way, 0, 0, 0, 0});
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  static const Scratch folder;
  static ScratchFile file(folder, "shard.h5");
  Input input(bytes);
  const unsigned how = input.byte();
  file.put(hdf5_file(input));
  data::ExternalSpec spec;
  spec.cache_bytes = 1 << 16;
  spec.range = how % 16 < 8 ? "auto" : "-1-1";
  data::DataSet rows(file.path(), spec);
  const data::DataSetInfo& info = rows.info();
  for (const std::int32_t label : rows.labels())
    require_law(label >= 0 && static_cast<std::size_t>(label) < info.classes.size(),
                "a label has its class");
  if (how % 32 > 15 && rows.storage().contiguous) rows.map();
  if (info.encoding == data::Encoding::raw && info.row_bytes() > most_pixels) return;
  read_rows(rows, how);
}

}  // namespace lockstep::fuzz
