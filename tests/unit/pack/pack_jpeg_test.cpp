#include <algorithm>
#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "tests/unit/data/image_fixture.hpp"
#include "tests/unit/pack/pack_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::pack;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

PackSpec jpegs() {
  PackSpec spec;
  spec.jpeg = true;
  spec.rows_per_shard = 5;
  spec.held_out = 0.2;
  return spec;
}

/// Two classes of JPEGs of several sizes; `extra` becomes one more image of the first class.
fs::path make_folder(const fs::path& folder, const std::string& extra = {}) {
  for (std::size_t i = 0; i < 12; ++i) {
    Image image = picture(20 + i, 40 - i, i % 4 == 0 ? 1 : 3);
    image.pixels[0] = static_cast<std::uint8_t>(i);
    write_file(folder / (i % 2 ? "cat" : "dog") / (std::to_string(i) + ".jpg"), jpeg_of(image));
  }
  if (!extra.empty()) write_file(folder / "cat" / "extra.png", extra);
  return folder;
}

/// The JPEGs of a packed split, sorted.
std::vector<std::string> files_in(const fs::path& split) {
  const DataSet rows(split);
  std::vector<std::string> files;
  std::vector<std::uint8_t> buffer;
  for (std::size_t row = 0; row < rows.info().rows; ++row) {
    const auto file = rows.read_jpeg(row, buffer);
    files.emplace_back(file.begin(), file.end());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("packed JPEGs are the source's files, whatever their size", "[pack][jpeg]") {
  const Folder folder;
  const auto source = open_class_folders(make_folder(folder.path / "images"));
  PackSpec spec = jpegs();
  spec.held_out = 0;
  const ChannelSums sums = pack_as(2, *source, spec, folder.path / "out").sums;
  std::vector<std::string> want;
  ChannelSums all(DataSetInfo{.channels = 3});
  for (std::size_t row = 0; row < source->rows(); ++row) {
    want.push_back(source->read_file(row));
    all.add(with_channels(source->read(row), 3).pixels);
  }
  std::sort(want.begin(), want.end());
  CHECK(files_in(folder.path / "out/train") == want);
  const DataSet rows(folder.path / "out/train");
  CHECK(rows.info().mean == all.mean());
  CHECK(rows.info().stddev == all.stddev());
  CHECK(sums.words() == all.words());
}

TEST_CASE("any number of ranks packs the same JPEG shards", "[pack][jpeg]") {
  const Folder folder;
  const auto source =
      open_class_folders(make_folder(folder.path / "images", png_of(picture(9, 7, 3))));
  PackSpec spec = jpegs();
  spec.short_side = 22;
  pack_as(1, *source, spec, folder.path / "one");
  for (const std::size_t ranks : {2, 3}) {
    pack_as(ranks, *source, spec, folder.path / "more");
    CHECK(contents(folder.path / "more") == contents(folder.path / "one"));
    fs::remove_all(folder.path / "more");
  }
}

TEST_CASE("other images are encoded, and larger ones get the shorter side", "[pack][jpeg]") {
  const Folder folder;
  const Image picture_of = picture(31, 17, 3);
  const auto source = open_class_folders(make_folder(folder.path / "images", png_of(picture_of)));
  PackSpec spec = jpegs();
  spec.held_out = 0;
  spec.short_side = 18;
  spec.quality = 95;
  pack_as(1, *source, spec, folder.path / "out");
  const DataSet rows(folder.path / "out/train");
  bool encoded = false;
  for (std::size_t row = 0; row < rows.info().rows; ++row) {
    const auto [height, width] = rows.size(row);
    CHECK(std::min(height, width) <= 18);
    std::vector<std::uint8_t> buffer;
    const auto file = rows.read_jpeg(row, buffer);
    const Image image = decode_image({reinterpret_cast<const char*>(file.data()), file.size()},
                                     std::to_string(row));
    CHECK(image.height == height);
    CHECK(image.width == width);
    if (height != 31 || width != 17) continue;
    encoded = true;
    double error = 0;
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      error += std::abs(int{image.pixels[i]} - int{picture_of.pixels[i]});
    CHECK(error / static_cast<double>(image.pixels.size()) < 6);
  }
  CHECK(encoded);
}

TEST_CASE("grey shards hold grey JPEGs only", "[pack][jpeg]") {
  const Folder folder;
  const auto source = open_class_folders(make_folder(folder.path / "images"));
  PackSpec spec = jpegs();
  spec.channels = 1;
  spec.held_out = 0;
  pack_as(1, *source, spec, folder.path / "out");
  const DataSet rows(folder.path / "out/train");
  CHECK(rows.info().channels == 1);
  std::vector<std::uint8_t> buffer;
  for (std::size_t row = 0; row < rows.info().rows; ++row) {
    const auto file = rows.read_jpeg(row, buffer);
    const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
    CHECK(decode_image(bytes, "row").channels == 1);
  }
}

TEST_CASE("a broken JPEG ends a pack with its name, or is left out", "[pack][jpeg]") {
  const Folder folder;
  const auto source = open_class_folders(
      make_folder(folder.path / "images", jpeg_of(picture(9, 9, 3)).substr(0, 400)));
  PackSpec spec = jpegs();
  spec.held_out = 0;
  CHECK_THROWS_WITH(pack_as(1, *source, spec, folder.path / "out"),
                    Contains("extra.png: broken JPEG"));
  spec.skip_bad = true;
  pack_as(2, *source, spec, folder.path / "out");
  CHECK(DataSet(folder.path / "out/train").info().rows == 12);
}
