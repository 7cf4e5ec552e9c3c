// Images of several data sets, and chosen channels: mapped, and copied to a node.
#include <catch2/catch.hpp>

#include "lockstep/base/rng.hpp"
#include "tests/unit/data/external/external_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using namespace lockstep::test::external;

namespace lockstep::test::external_picked {
namespace {

constexpr std::size_t rows = 9, side = 8, of_a = 3, of_b = 5;

/// A number of 16 bits, of channel `c` of all eight.
std::uint16_t number(std::size_t row, std::size_t pixel, std::size_t c) {
  return static_cast<std::uint16_t>(draw(5, row, pixel * 8 + c, Draw::synth));
}

/// Channels [begin, begin + count) of all rows, as they lie in a file.
std::vector<double> numbers(std::size_t begin, std::size_t count, bool first) {
  std::vector<double> all;
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < side * side * count; ++i) {
      const std::size_t c = first ? i / (side * side) : i % count;
      all.push_back(number(row, first ? i % (side * side) : i / count, begin + c));
    }
  return all;
}

/// /a has three channels, /b five; `first`: those of /b are planes.
fs::path write(const fs::path& path, bool first, hid_t type = H5T_STD_U16LE) {
  Foreign file(path);
  file.write("a", {rows, side, side, of_a}, numbers(0, of_a, false), type);
  file.write("b",
             first ? std::vector<hsize_t>{rows, of_b, side, side}
                   : std::vector<hsize_t>{rows, side, side, of_b},
             numbers(of_a, of_b, first), type);
  std::vector<double> labels;
  for (std::size_t row = 0; row < rows; ++row) labels.push_back(static_cast<double>(row % 2));
  file.write("labels", {rows}, labels);
  return file.close();
}

ExternalSpec asked(const std::string& images, const std::string& channels) {
  ExternalSpec spec;
  spec.images = images;
  spec.channels = channels;
  return spec;
}

/// Whether each row has these of all eight channels, read, and seen in place or as if.
bool has(const DataSet& set, const std::vector<std::size_t>& channels) {
  std::vector<std::uint8_t> image(set.info().row_bytes()), buffer;
  bool right = image.size() == side * side * channels.size() * 2;
  for (std::size_t i = 0; right && i < rows; ++i) {
    const std::size_t row = i * 4 % rows;
    set.read(row, image);
    const auto seen = set.view(row, buffer);
    right = std::ranges::equal(seen, image);
    for (std::size_t p = 0; p < side * side; ++p)
      for (std::size_t c = 0; c < channels.size(); ++c) {
        const std::uint8_t* at = &image[(p * channels.size() + c) * 2];
        right = right && at[0] + 256 * at[1] == number(row, p, channels[c]);
      }
  }
  return right;
}

struct Asked {
  const char *images, *channels;
  std::vector<std::size_t> of_all;
};
const Asked cases[] = {{"a,b", "", {0, 1, 2, 3, 4, 5, 6, 7}},
                       {"b,a", "", {3, 4, 5, 6, 7, 0, 1, 2}},
                       {"a,b", "7,0,1,2,4", {7, 0, 1, 2, 4}},
                       {"a,b", "5", {5}},
                       {"b", "4,1,2", {7, 4, 5}}};

}  // namespace

TEST_CASE("joined and chosen channels are the same read, mapped, staged, and both", "[external]") {
  const Folder folder;
  const RowRange all{0, rows};
  for (const bool first : {false, true}) {
    const fs::path path = write(folder.path / (first ? "planes.h5" : "pixels.h5"), first);
    for (const Asked& one : cases)
      for (const bool staged : {false, true})
        for (const bool mapped : {false, true}) {
          CAPTURE(first, one.images, one.channels, staged, mapped);
          DataSet set(path, asked(one.images, one.channels));
          if (staged) {
            const NodeCopy copy = set.copy_to(folder.path / "copy", {&all, 1});
            CHECK(copy.fits);
            CHECK(copy.bytes > 0);
          }
          if (mapped) set.map();
          CHECK(has(set, one.of_all));
          if (staged) CHECK(set.copied() == 1);
        }
  }
}

TEST_CASE("the copy is what joined channels are read from, and a cut file an error", "[external]") {
  const Folder folder;
  const fs::path path = write(folder.path / "a.h5", false);
  const RowRange all{0, rows};
  DataSet copied(path, asked("a,b", "")), cut(path, asked("a,b", ""));
  copied.copy_to(folder.path / "copy", {&all, 1});
  CHECK(has(copied, cases[0].of_all));
  cut.map();
  CHECK(has(cut, cases[0].of_all));
  fs::resize_file(path, 2048);  // the end of both
  CHECK(has(copied, cases[0].of_all));
  std::vector<std::uint8_t> image(cut.info().row_bytes());
  CHECK_THROWS_WITH(cut.read(rows - 1, image), Contains("a.h5: row 8"));
}

TEST_CASE("where a part is in chunks, it cannot be staged, and mapping changes nothing",
          "[external]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  Foreign file(path);
  const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t chunk[] = {2, side, side, of_b};
  H5Pset_chunk(created, 4, chunk);
  file.write("a", {rows, side, side, of_a}, numbers(0, of_a, false), H5T_STD_U16LE);
  file.write("b", {rows, side, side, of_b}, numbers(of_a, of_b, false), H5T_STD_U16LE, created);
  H5Pclose(created);
  file.write("labels", {rows}, std::vector<double>(rows, 0));
  file.close();
  DataSet set(path, asked("a,b", ""));
  const RowRange all{0, rows};
  CHECK_THROWS_WITH(set.copy_to(folder.path / "copy", {&all, 1}),
                    Contains("a.h5: is not contiguous") && Contains("pack --repack"));
  set.map();
  CHECK(has(set, cases[0].of_all));
}

}  // namespace lockstep::test::external_picked
