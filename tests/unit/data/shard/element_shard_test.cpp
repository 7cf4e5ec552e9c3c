// Shards of version 3: other elements than uint8, names of channels.
#include <hdf5.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/h5.hpp"
#include "tests/unit/data/shard_fixture.hpp"
#include "tests/unit/pack/pack_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

DataSetInfo info_of(Element element) {
  DataSetInfo info = small_info();
  info.element = element;
  return info;
}

/// A row's elements, of any bits that are no infinity and no NaN.
std::vector<std::uint8_t> elements(const DataSetInfo& info, std::size_t row) {
  std::vector<std::uint8_t> bytes = pixels(info, row);
  const std::size_t size = bytes_of(info.element);
  if (is_float(info.element))
    for (std::size_t i = size - 1; i < bytes.size(); i += size) bytes[i] &= 0xbb;
  return bytes;
}

fs::path write(const fs::path& path, const DataSetInfo& info, std::size_t rows) {
  ShardWriter writer(path, info, rows);
  for (std::size_t row = 0; row < rows; ++row)
    writer.write(elements(info, row), static_cast<std::int32_t>(row % info.classes.size()));
  writer.finish();
  return path;
}

std::int64_t version_of(const fs::path& path) {
  const h5::Session session;
  const h5::File file = h5::open_file(path);
  return h5::Item::attribute(file.get(), path, "format_version").number<std::int64_t>();
}

/// Puts a text into an attribute of the root.
void set_text(const fs::path& path, const char* name, const char* text) {
  const h5::Session session;
  const h5::File file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
  H5Adelete(file.get(), name);
  const h5::Type type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), std::string_view(text).size());
  const h5::Space space(H5Screate(H5S_SCALAR));
  const h5::Attribute attribute(
      H5Acreate2(file.get(), name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
  H5Awrite(attribute.get(), type.get(), text);
}

}  // namespace

TEST_CASE("shards hold every element, and give the bytes that were written", "[shard][elements]") {
  const Folder folder;
  const Element element =
      GENERATE(Element::u8, Element::u16, Element::i16, Element::f16, Element::f32);
  const DataSetInfo info = info_of(element);
  const fs::path path = write(folder.path / "a.h5", info, 7);
  CHECK(version_of(path) == (element == Element::u8 ? 2 : 3));
  for (const bool mapped : {false, true}) {
    DataSet set(path);
    if (mapped) set.map();
    CHECK(set.info().element == element);
    CHECK(set.info().mean == info.mean);
    std::vector<std::uint8_t> buffer;
    for (std::size_t row = 0; row < 7; ++row) {
      const auto got = set.view(row, buffer);
      CHECK(std::vector(got.begin(), got.end()) == elements(info, row));
    }
  }
}

TEST_CASE("names of channels make a shard of version 3, also of uint8", "[shard][elements]") {
  const Folder folder;
  DataSetInfo info = small_info();
  info.channel_names = {"B2", "grün", "NIR"};
  const fs::path path = write(folder.path / "a.h5", info, 3);
  CHECK(version_of(path) == 3);
  CHECK(DataSet(path).info().channel_names == info.channel_names);
  info.channel_names[1] = "red";
  write(folder.path / "b.h5", info, 4);
  CHECK_THROWS_WITH(DataSet(folder.path), Contains("has the channels B2, red, NIR, but"));
}

TEST_CASE("another task is an error in one line", "[shard][elements]") {
  const Folder folder;
  const fs::path path = write(folder.path / "a.h5", info_of(Element::f32), 3);
  set_text(path, "task", "labels");
  CHECK_THROWS_WITH(DataSet(path), Contains("a.h5: the data set /targets is missing"));
}

TEST_CASE("a byte that changes in a row of floats is found, and so is a NaN", "[shard][elements]") {
  const Folder folder;
  const DataSetInfo info = info_of(Element::f32);
  std::vector<std::uint8_t> row = elements(info, 0);
  const fs::path path = write(folder.path / "a.h5", info, 3);
  std::string bytes = read_text(path);
  const std::vector<std::uint8_t> second = elements(info, 1);
  const std::size_t at = bytes.find(std::string(second.begin(), second.end()));
  REQUIRE(at != std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write_file(path, bytes);
  const DataSet set(path);
  CHECK_NOTHROW(set.read(0, row));
  CHECK_THROWS_WITH(set.read(1, row), Contains("a.h5: row 1 is damaged"));
  ShardWriter writer(folder.path / "b.h5", info, 1);
  std::fill(row.begin(), row.begin() + 4, std::uint8_t{0xff});
  writer.write(row, 0);
  writer.finish();
  CHECK_THROWS_WITH(DataSet(folder.path / "b.h5").read(0, row), Contains("row 0 has NaN"));
}

TEST_CASE("a repack of floats has the same bytes on any ranks, and so has a repack of that",
          "[pack][elements]") {
  const Folder folder;
  DataSetInfo info = info_of(Element::f32);
  info.channel_names = {"a", "b", "c"};
  write(folder.path / "in.h5", info, 40);
  SourceSpec from;
  from.kind = "shards";
  from.files = {folder.path / "in.h5"};
  PackSpec spec;
  spec.rows_per_shard = 7;
  spec.held_out = 0.2;
  const Totals all = pack_as(1, *open_source(from, {}), spec, folder.path / "one");
  pack_as(3, *open_source(from, {}), spec, folder.path / "three");
  CHECK(contents(folder.path / "one") == contents(folder.path / "three"));
  const DataSet rows(folder.path / "one/train");
  CHECK(rows.info().element == Element::f32);
  CHECK(rows.info().channel_names == info.channel_names);
  CHECK(rows.info().mean == all.sums.mean());
  from.files = {folder.path / "one/train"};
  PackSpec same;
  same.rows_per_shard = 7;
  same.keep_order = true;
  pack_as(2, *open_source(from, {}), same, folder.path / "again");
  CHECK(contents(folder.path / "again/train") == contents(folder.path / "one/train"));
  PackSpec jpegs, grey;
  jpegs.jpeg = true;
  grey.channels = 1;
  for (const PackSpec& wrong : {jpegs, grey})
    CHECK_THROWS_WITH(packed_info(*open_source(from, {}), wrong),
                      Contains("channels of float32, which are packed as they are"));
}

TEST_CASE("what stands for no data is left out of mean and deviation, and kept in a shard",
          "[shard][elements]") {
  const Folder folder;
  DataSetInfo info{.rows = 0, .height = 1, .width = 4, .channels = 2, .element = Element::i16};
  info.classes = {"a"};
  info.mean = info.stddev = {1, 1};
  info.no_data = -9999;
  const std::int16_t values[] = {1, -9999, 3, -9999, -9999, -9999, 5, -9999};
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(values), sizeof values);
  ChannelSums sums(info);
  sums.add(bytes);
  CHECK(sums.values() == 3);
  CHECK(sums.mean() == std::vector<float>{3, 0});
  CHECK(sums.stddev()[0] == Approx(std::sqrt(8 / 3.0)));
  CHECK(sums.stddev()[1] == 1);
  CHECK(sums.constant() == std::vector<std::size_t>{1});
  {
    ShardWriter writer(folder.path / "a.h5", info, 1);
    writer.write(bytes, 0);
    writer.finish();
  }
  const DataSet set(folder.path / "a.h5");
  CHECK(set.info().no_data == info.no_data);
  CHECK(set.say_share_of_no_data() ==
        "no data is -9999: 62.5 % of the values of 1 row; 0 of these are nothing else");
  info.no_data = 1;
  {
    ShardWriter writer(folder.path / "b.h5", info, 1);
    writer.write(bytes, 0);
    writer.finish();
  }
  CHECK_THROWS_WITH(DataSet(folder.path), Contains("has as no data 1, but"));
}

TEST_CASE("NaN that stands for no data is left out of sums of floats", "[shard][elements]") {
  DataSetInfo info{.channels = 1, .element = Element::f32};
  info.no_data = std::numeric_limits<float>::quiet_NaN();
  const float values[] = {*info.no_data, 2, *info.no_data, 4};
  ChannelSums none(info), sums(info);
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(values), sizeof values);
  none.add(bytes.first(4));
  sums.add(none);
  sums.add(bytes);
  CHECK(sums.mean() == std::vector<float>{3});
  CHECK(sums.stddev() == std::vector<float>{1});
}

TEST_CASE("sums of floats that are joined are those of all rows, however large the values",
          "[pack][elements]") {
  const DataSetInfo one{.channels = 1, .element = Element::f32};
  ChannelSums whole(one), joined(one);
  for (int group = 0; group < 9; ++group) {
    ChannelSums part(one);
    for (int row = 0; row < 11; ++row) {
      std::vector<float> values;
      for (std::size_t i = 0; i < 64; ++i)
        values.push_back(
            1e7f + 2 * (draw(5, static_cast<std::uint64_t>(group * 11 + row), i, Draw::synth) % 2) -
            1);
      const std::span bytes(reinterpret_cast<const std::uint8_t*>(values.data()),
                            values.size() * sizeof(float));
      whole.add(bytes);
      part.add(bytes);
    }
    ChannelSums stored(one);
    stored.set_words(part.words());
    joined.add(stored);
  }
  CHECK(joined.mean() == whole.mean());
  CHECK(joined.stddev()[0] == Approx(whole.stddev()[0]).epsilon(1e-6));
  CHECK(joined.stddev()[0] == Approx(1).margin(0.01));
}
