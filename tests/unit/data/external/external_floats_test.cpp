#include <catch2/catch.hpp>

#include "tests/unit/data/external/external_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using namespace lockstep::test::external;

namespace {

constexpr std::size_t float_rows = 40, side = 16, row_values = side * side;

/// Grey images of floats; `value` gets the row and a number from 0 to 1.
fs::path write_floats(const fs::path& path, hid_t type,
                      const std::function<double(std::size_t, std::size_t, double)>& value,
                      bool chunked = false) {
  std::vector<double> values(float_rows * row_values), labels(float_rows);
  for (std::size_t row = 0; row < float_rows; ++row) {
    labels[row] = static_cast<double>(row % 2);
    for (std::size_t i = 0; i < row_values; ++i) {
      const auto drawn = static_cast<double>(draw(5, row, i, Draw::synth) % 1'000'000) / 1e6;
      values[row * row_values + i] = value(row, i, drawn);
    }
  }
  Foreign file(path);
  const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t chunk[] = {3, side, side};
  if (chunked) H5Pset_chunk(created, 3, chunk);
  file.write("images", {float_rows, side, side}, values, type, created);
  H5Pclose(created);
  file.write("labels", {float_rows}, labels);
  return file.close();
}

}  // namespace

TEST_CASE("floats that 256 levels would ruin are an error that says how much they lose",
          "[external]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  ExternalSpec spec;
  spec.element = "uint8";
  for (const bool chunked : {false, true}) {
    // Reflectance: small numbers, and a bright corner beyond 1.
    write_floats(
        path, H5T_IEEE_F32LE, [](auto, auto i, double x) { return i < 4 ? 1.6 : 0.1 + 0.05 * x; },
        chunked);
    CHECK_THAT(refusal(path, spec),
               Contains("a.h5: its floats (0.1 to 1.6) become 256 levels of 0 to 255, "
                        "which changes channel 0 by ") &&
                   Contains("at most 3 % is taken: scale them"));
    // A faint signal next to a hot pixel.
    write_floats(
        path, H5T_IEEE_F64LE, [](auto, auto i, double x) { return i == 0 ? 0.4 : 0.002 * x; },
        chunked);
    CHECK_THAT(refusal(path, spec),
               Contains("become 256 levels of 0 to 1") && Contains("at most 3 %"));
  }
  // The range that a user gives makes no difference.
  write_floats(path, H5T_IEEE_F32LE, [](auto, auto, double x) { return x; });
  CHECK(refusal(path, spec).empty());
  spec = {};
  spec.range = "0-255";
  CHECK_THAT(refusal(path, spec), Contains("levels of 0 to 255") && Contains("at most 3 %"));
}

TEST_CASE("floats that lose a little are read with a warning, and levels without one",
          "[external]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  ExternalSpec spec;
  spec.element = "uint8";
  write_floats(path, H5T_IEEE_F32LE, [](auto, auto, double x) { return 0.4 + 0.2 * x; });
  const DataSet narrow(path, spec);
  REQUIRE(narrow.doubts().size() == 1);
  CHECK_THAT(narrow.doubts()[0], Contains("a.h5: its floats (0.4 to 0.6) become 256 levels of 0 to "
                                          "1, which changes channel 0 by 2 % of its deviation"));
  // A faint signal next to four hot pixels: they make a deviation of which the loss is little.
  write_floats(path, H5T_IEEE_F32LE,
               [](auto, auto i, double x) { return i < 4 ? 1.0 : 0.0015 * x; });
  const DataSet faint(path, spec);
  REQUIRE(faint.doubts().size() == 1);
  CHECK_THAT(faint.doubts()[0],
             Contains("levels of 0 to 1, of which one takes 98.4 % of channel 0, "
                      "whose differences are lost"));
  // A background of one number is no loss.
  write_floats(path, H5T_IEEE_F32LE, [](auto, auto i, double x) { return i < 60 ? x : 0.0007; });
  CHECK(DataSet(path, spec).doubts().empty());
  CHECK_FALSE(narrow.storage().converted);  // 'info' does not advise to convert floats
  write_floats(path, H5T_IEEE_F32LE, [](auto, auto, double x) { return x; });
  CHECK(DataSet(path, spec).doubts().empty());
  // Few levels, but these are exact.
  for (const double scale : {1.0, 1 / 255.0}) {
    write_floats(path, H5T_IEEE_F32LE,
                 [&](auto, auto, double x) { return scale * static_cast<int>(3 * x); });
    CHECK(DataSet(path, spec).doubts().empty());
  }
}

TEST_CASE("NaN and infinities are named with their row, channel and share", "[external]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  ExternalSpec spec;
  spec.element = "uint8";
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinite = std::numeric_limits<double>::infinity();
  write_floats(path, H5T_IEEE_F32LE,
               [&](auto row, auto i, double x) { return row == 17 && i == 3 ? nan : x; });
  CHECK_THAT(refusal(path, spec),
             Contains("a.h5: row 17 has NaN (not a number) in channel 0, as 0.00977"));
  write_floats(path, H5T_IEEE_F64LE,
               [&](auto row, auto i, double x) { return row == 17 && i == 3 ? -infinite : x; });
  CHECK_THAT(refusal(path, spec), Contains("a.h5: row 17 has an infinite number in channel 0"));
}
