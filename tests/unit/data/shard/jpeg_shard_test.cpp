#include <hdf5.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <new>

#include "data/augment/geometry.hpp"
#include "data/image/jpeg/jpeg_codec.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/data/image/image.hpp"
#include "lockstep/data/loading/loader.hpp"
#include "lockstep/data/loading/row_reader.hpp"
#include "tests/unit/data/image_fixture.hpp"
#include "tests/unit/data/shard_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::device;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

DataSetInfo jpeg_info() {
  DataSetInfo info = small_info();
  info.height = info.width = 0;
  info.encoding = Encoding::jpeg;
  return info;
}

std::size_t height_of(std::size_t row) { return 20 + row % 7; }
std::size_t width_of(std::size_t row) { return 30 - row % 5; }

Image image_of(std::size_t row) {
  Image image = picture(height_of(row), width_of(row), 3);
  image.pixels[0] = static_cast<std::uint8_t>(row);
  return image;
}

std::string file_of(std::size_t row) { return jpeg_of(image_of(row), row % 3 == 0); }

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

fs::path write_jpegs(const fs::path& path, std::size_t first, std::size_t rows) {
  ShardWriter writer(path, jpeg_info(), rows);
  for (std::size_t row = first; row < first + rows; ++row)
    writer.write_jpeg(bytes_of(file_of(row)), height_of(row), width_of(row),
                      static_cast<std::int32_t>(row % 3));
  writer.finish();
  return path;
}

/// Writes `values` over the beginning of a data set.
template <class Number>
void overwrite(const fs::path& path, const char* name, hid_t type, std::vector<Number> values) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t data = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(data);
  const hsize_t start[] = {0, 0};
  const hsize_t count[] = {values.size(), 1};
  const hid_t memory = H5Screate_simple(1, count, nullptr);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr);
  REQUIRE(H5Dwrite(data, type, memory, space, H5P_DEFAULT, values.data()) >= 0);
  for (const hid_t id : {memory, space}) H5Sclose(id);
  H5Dclose(data);
  H5Fclose(file);
}

AugmentSpec training(std::size_t side) {
  AugmentSpec spec;
  spec.crop = Crop::random_resized;
  spec.height = spec.width = side;
  spec.flip = true;
  return spec;
}

struct HostMemory final : Device {
  std::string name() const override { return "host"; }
  Stream& compute() override { throw Error("this device has no stream"); }
};

/// All batches of two epochs: images, then labels.
std::vector<std::uint8_t> all_batches(const DataSet& rows, const AugmentSpec& how,
                                      std::size_t workers, std::size_t first_batch = 0) {
  HostMemory memory;
  LoaderSpec spec;
  spec.sampler.rows = rows.info().rows;
  spec.sampler.global_batch = 8;
  spec.augment = how;
  spec.workers = workers;
  spec.epochs = 2;
  spec.batch = first_batch;
  Loader loader(rows, spec, memory);
  std::vector<std::uint8_t> all;
  for (std::size_t i = first_batch; i < 2 * loader.sampler().batches(); ++i) {
    const Batch batch = loader.next();
    all.insert(all.end(), batch.images, batch.images + batch.rows * how.height * how.width * 3);
    for (std::size_t r = 0; r < batch.rows; ++r)
      all.push_back(static_cast<std::uint8_t>(batch.targets[r].label_a));
    loader.release(batch);
  }
  return all;
}

}  // namespace

TEST_CASE("a data set gives back every JPEG of its shards, byte for byte", "[jpeg][shard]") {
  const Folder folder;
  write_jpegs(folder.path / "a.h5", 0, 1);
  write_jpegs(folder.path / "b.h5", 1, 90);  // more than 64 KiB
  const DataSet rows(folder.path);
  CHECK(rows.info().rows == 91);
  CHECK(rows.info().encoding == Encoding::jpeg);
  CHECK(rows.info().channels == 3);
  CHECK(rows.storage().contiguous);
  std::vector<std::uint8_t> buffer;
  for (std::size_t row = 0; row < 91; ++row) {
    const std::string file = file_of(row);
    const std::span<const std::uint8_t> got = rows.read_jpeg(row, buffer);
    REQUIRE(std::string(got.begin(), got.end()) == file);
    REQUIRE(rows.row_bytes(row) == file.size());
    REQUIRE(rows.size(row) == std::array<std::size_t, 2>{height_of(row), width_of(row)});
    REQUIRE(rows.labels()[row] == static_cast<std::int32_t>(row % 3));
  }
}

TEST_CASE("the same JPEGs make the same bytes, and nothing else stays", "[jpeg][shard]") {
  const Folder folder;
  for (const std::size_t rows : {1, 90}) {
    const std::string first = read_text(write_jpegs(folder.path / "a.h5", 0, rows));
    CHECK(read_text(write_jpegs(folder.path / "a.h5", 0, rows)) == first);
    CHECK(names_in(folder.path) == std::vector<std::string>{"a.h5"});
  }
}

TEST_CASE("a damaged JPEG or a changed label is an error that names the row", "[jpeg][shard]") {
  const Folder folder;
  const fs::path path = write_jpegs(folder.path / "a.h5", 0, 5);
  std::vector<std::uint8_t> buffer;
  overwrite<std::uint8_t>(path, "jpegs", H5T_NATIVE_UINT8, {0xFF, 0xD8, 0xFE});
  CHECK_THROWS_WITH(DataSet(path).read_jpeg(0, buffer),
                    Contains("a.h5: row 0 is damaged: the CRC-32C of its JPEG and its label"));
  CHECK_NOTHROW(DataSet(path).read_jpeg(1, buffer));
  write_jpegs(path, 0, 5);
  overwrite<std::int32_t>(path, "labels", H5T_NATIVE_INT32, {2});
  CHECK_THROWS_WITH(DataSet(path).read_jpeg(0, buffer), Contains("row 0 is damaged"));
}

TEST_CASE("impossible offsets and sizes are errors that name the row", "[jpeg][shard]") {
  const Folder folder;
  const fs::path path = write_jpegs(folder.path / "a.h5", 0, 5);
  overwrite<std::uint64_t>(path, "offsets", H5T_NATIVE_UINT64, {0, 50, 40});
  CHECK_THROWS_WITH(DataSet(path), Contains("a.h5: row 1 is bytes 50 to 40 of"));
  write_jpegs(path, 0, 5);
  overwrite<std::uint64_t>(path, "offsets", H5T_NATIVE_UINT64, {0, std::uint64_t{1} << 63});
  CHECK_THROWS_WITH(DataSet(path), Contains("a.h5: row 0 is bytes 0 to 9223372036854775808 of"));
  write_jpegs(path, 0, 5);
  overwrite<std::uint16_t>(path, "sizes", H5T_NATIVE_UINT16, {20, 0});
  CHECK_THROWS_WITH(DataSet(path), Contains("a.h5: row 1 has 0 x"));
  write_jpegs(path, 0, 5);
  overwrite<std::uint16_t>(path, "sizes", H5T_NATIVE_UINT16, {19});
  const DataSet rows(path);
  RowReader reader(rows, training(16));
  std::vector<std::uint8_t> image(reader.row_bytes());
  CHECK_THROWS_WITH(reader.read(0, 0, image),
                    Contains("a.h5: row 0: its JPEG is 20 x 30 pixels, but 19 x 30 are stored"));
  CHECK_NOTHROW(reader.read(0, 1, image));
}

TEST_CASE("a truncated shard of JPEGs is an error, wherever it is cut", "[jpeg][shard]") {
  const Folder folder;
  const fs::path path = write_jpegs(folder.path / "a.h5", 0, 20);
  const std::string whole = read_text(path);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{100}, whole.size() / 2, whole.size() - 1}) {
    write_file(path, whole.substr(0, size));
    CHECK_THROWS_WITH(DataSet(path), Contains("a.h5"));
  }
}

TEST_CASE("shards of pixels and of JPEGs are not one data set", "[jpeg][shard]") {
  const Folder folder;
  write_jpegs(folder.path / "a.h5", 0, 3);
  write_shard(folder.path / "b.h5", small_info(), 0, 3);
  CHECK_THROWS_WITH(DataSet(folder.path),
                    Contains("b.h5") && Contains("a.h5") && Contains("JPEGs of 3 channels"));
}

TEST_CASE("a JPEG row in evaluation is Pillow's resize and centre crop, but for a level",
          "[jpeg][loader]") {
  const Folder folder;
  write_jpegs(folder.path / "a.h5", 0, 30);
  const DataSet rows(folder.path);
  AugmentSpec spec;
  spec.crop = Crop::centre;
  spec.height = spec.width = 14;
  spec.short_side = 16;
  RowReader reader(rows, spec);
  std::vector<std::uint8_t> got(reader.row_bytes());
  for (std::size_t row = 0; row < 30; ++row) {
    reader.read(0, row, got);
    std::size_t tall = height_of(row), wide = width_of(row);
    resized(16, tall, wide);
    const Image want = resize(decode_image(file_of(row), "row"), tall, wide);
    const std::size_t top = 1, left = (wide - 14) / 2 + ((wide - 14) % 4 == 3 ? 1 : 0);
    for (std::size_t y = 0; y < 14; ++y)
      for (std::size_t i = 0; i < 14 * 3; ++i)
        REQUIRE(std::abs(int{got[y * 14 * 3 + i]} -
                         int{want.pixels[((top + y) * wide + left) * 3 + i]}) <= 1);
  }
}

TEST_CASE("batches of JPEGs do not depend on the number of workers or on a resume",
          "[jpeg][loader]") {
  const Folder folder;
  write_jpegs(folder.path / "a.h5", 0, 13);
  write_jpegs(folder.path / "b.h5", 13, 37);
  const DataSet rows(folder.path);
  AugmentSpec how = training(24);
  how.cutout = 6;
  how.effects = {.contrast = 0.4f, .hue = 0.1f, .operations = 2, .erase = 0.5f};
  const std::vector<std::uint8_t> batches = all_batches(rows, how, 1);
  CHECK(all_batches(rows, how, 3) == batches);
  const std::vector<std::uint8_t> rest = all_batches(rows, how, 2, 5);
  CHECK(std::equal(rest.begin(), rest.end(),
                   batches.end() - static_cast<std::ptrdiff_t>(rest.size())));
  how.seed = 2;
  CHECK(all_batches(rows, how, 1) != batches);
}

TEST_CASE("a random window of a resized JPEG lies in it", "[jpeg][loader]") {
  const Folder folder;
  write_jpegs(folder.path / "a.h5", 0, 9);
  const DataSet rows(folder.path);
  AugmentSpec how;
  how.height = how.width = 16;
  how.short_side = 18;
  CHECK(all_batches(rows, how, 1) == all_batches(rows, how, 2));
}

TEST_CASE("an impossible crop is an error that names the data set", "[jpeg][loader]") {
  const DataSetInfo jpegs = jpeg_info(), pixels = small_info();
  AugmentSpec how;
  CHECK_THROWS_WITH(delivered(jpegs, how, "set"), Contains("set has images of many sizes"));
  how.height = how.width = 8;
  CHECK_THROWS_WITH(delivered(jpegs, how, "set"), Contains("--data.resize"));
  CHECK_THROWS_WITH(delivered(pixels, how, "set"), Contains("crops of 8 x 8 do not fit"));
  how.short_side = 7;
  CHECK_THROWS_WITH(delivered(pixels, how, "set"), Contains("data.resize = 7 is smaller"));
  how.short_side = 8;
  how.pad = 1;
  CHECK_THROWS_WITH(delivered(pixels, how, "set"), Contains("data.pad = 1"));
  how.pad = 0;
  CHECK(delivered(jpegs, how, "set").height == 8);
  CHECK(delivered(pixels, how, "set").width == 8);
  CHECK(delivered(pixels, AugmentSpec{}, "set").width == 4);
}
