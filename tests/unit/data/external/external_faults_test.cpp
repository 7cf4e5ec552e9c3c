#include <hdf5.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "tests/unit/data/external/external_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using namespace lockstep::test::external;

namespace {

void require_labels(const DataSet& set, std::size_t classes) {
  CHECK(set.info().classes.size() == classes);
  for (std::size_t row = 0; row < foreign_rows; ++row)
    REQUIRE(set.labels()[row] == static_cast<std::int32_t>(row % 3));
}

}  // namespace

TEST_CASE("one-hot labels are read, and each column is a class", "[external][label]") {
  const Folder folder;
  for (const hid_t type : {H5T_STD_U8LE, H5T_IEEE_F32LE, H5T_STD_I64BE}) {
    Foreign file(folder.path / "a.h5");
    file.write_images();
    file.write("y", {foreign_rows, 5}, one_hot(5), type);
    require_labels(DataSet(file.close()), 5);
  }
  ExternalSpec spec;
  spec.labels = "y";
  require_labels(DataSet(folder.path / "a.h5", spec), 5);
}

TEST_CASE("a label for each row takes precedence over a matrix", "[external][label]") {
  const Folder folder;
  Foreign file(folder.path / "a.h5");
  file.write_images();
  file.write("labels", {foreign_rows}, counting());
  file.write("features", {foreign_rows, 5}, std::vector<double>(foreign_rows * 5, 0.5),
             H5T_IEEE_F32LE);
  require_labels(DataSet(file.close()), 3);
}

TEST_CASE("a row that is not one-hot is an error that names it", "[external][label]") {
  const Folder folder;
  for (const double other : {1.0, 0.5, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    Foreign file(folder.path / "a.h5");
    std::vector<double> values = one_hot(4);
    values[7 * 4 + 3] = other;
    file.write_images();
    file.write("labels", {foreign_rows, 4}, values, H5T_IEEE_F64LE);
    const fs::path path = file.close();
    CHECK_THAT(refusal(path), Contains("a.h5: /labels [12, 4] is not one-hot in row 7") &&
                                  Contains("but in 11 of 12 rows"));
    CHECK_THAT(refusal(path, {.task = Task::classes}),
               Contains("a.h5: row 7 of /labels [12, 4] is not one-hot"));
  }
  Foreign file(folder.path / "a.h5");
  file.write_images();
  file.write("labels", {foreign_rows, 4}, std::vector<double>(foreign_rows * 4, 0), H5T_STD_U8LE);
  CHECK_THAT(refusal(file.close()),
             Contains("/labels [12, 4] is not one-hot in row 0") && Contains("no row has a 1"));
}

TEST_CASE("labels that are true or false are 1 and 0", "[external][label]") {
  const Folder folder;
  Foreign file(folder.path / "a.h5");
  const hid_t truth = H5Tenum_create(H5T_STD_I8LE);  // as h5py writes them
  for (const auto& [name, value] : {std::pair{"FALSE", std::int8_t{0}}, {"TRUE", std::int8_t{1}}})
    H5Tenum_insert(truth, name, &value);
  file.write_images();
  const hid_t space = H5Screate_simple(1, image_shape.data(), nullptr);
  const hid_t data =
      H5Dcreate2(file.id(), "labels", truth, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  std::vector<std::int8_t> values(foreign_rows);
  for (std::size_t row = 0; row < foreign_rows; ++row) values[row] = row % 2;
  H5Dwrite(data, truth, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  H5Dclose(data);
  H5Sclose(space);
  // Images are not, and the reason is told.
  Foreign masks(folder.path / "b.h5");
  const hid_t images = H5Screate_simple(4, image_shape.data(), nullptr);
  H5Dclose(H5Dcreate2(masks.id(), "masks", truth, images, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Lcreate_soft("/nowhere", masks.id(), "x", H5P_DEFAULT, H5P_DEFAULT);
  H5Sclose(images);
  H5Tclose(truth);
  CHECK_THAT(refusal(masks.close()),
             Contains("] (true and false, which are no pixels)") &&
                 Contains("Not usable: /x is a link to /nowhere, which is not there"));
  const DataSet set(file.close());
  CHECK(set.info().classes.size() == 2);
  for (std::size_t row = 0; row < foreign_rows; ++row) CHECK(set.labels()[row] == values[row]);
}

TEST_CASE("external links are listed, and never read as if they were here", "[external]") {
  const Folder folder;
  Foreign target(folder.path / "target.h5");
  target.write_images();
  target.write("labels", {foreign_rows}, counting());
  target.close();
  Foreign file(folder.path / "a.h5");
  file.link("images", "target.h5", "/images");
  file.link("labels", "gone.h5", "/labels");
  file.write("room", {100000}, std::vector<double>(100000));  // so that the offset lies in here
  CHECK_THAT(refusal(file.close()),
             Contains("/images is an external link to /images in target.h5") &&
                 Contains("/labels is an external link to /labels in gone.h5"));
  ExternalSpec spec;
  spec.images = "images";
  CHECK_THAT(refusal(folder.path / "a.h5", spec),
             Contains("the data set /images lies in another file"));
}

TEST_CASE("a data set that HDF5 cannot open is listed with the reason", "[external]") {
  const Folder folder;
  Foreign file(folder.path / "a.h5");
  file.write_images();
  file.write("labels", {foreign_rows}, counting());
  // A contiguous layout, version 3, as a newer version.
  const hid_t data = H5Dopen2(file.id(), "images", H5P_DEFAULT);
  const std::uint64_t place[2] = {H5Dget_offset(data), foreign_rows * 90};
  H5Dclose(data);
  std::string layout("\x03\x01", 2);
  layout.append(reinterpret_cast<const char*>(place), sizeof place);
  std::string bytes = read_text(file.close());
  const std::size_t at = bytes.find(layout);
  REQUIRE(at != bytes.npos);
  bytes[at] = 5;
  write_text_atomically(folder.path / "a.h5", bytes);
  CHECK_THAT(refusal(folder.path / "a.h5"),
             Contains("holds no images") && Contains("/labels [12]") &&
                 Contains("Not usable: /images cannot be opened by HDF5 ") && Contains("version"));
}

TEST_CASE("a filter that is not installed is named with its number and the plugins' folder",
          "[external]") {
  const Folder folder;
  const auto copy = [](unsigned, std::size_t, const unsigned*, std::size_t bytes, std::size_t*,
                       void**) { return bytes; };
  const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, 317, 1, 1, "imaginary", nullptr, nullptr, copy};
  for (const char* filtered : {"images", "labels"}) {
    REQUIRE(H5Zregister(&filter) >= 0);
    Foreign file(folder.path / "a.h5");
    const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
    const bool images = std::strcmp(filtered, "images") == 0;
    const hsize_t chunk[] = {6, 5, 6, 3};
    H5Pset_chunk(created, images ? 4 : 1, chunk);
    H5Pset_filter(created, 317, H5Z_FLAG_MANDATORY, 0, nullptr);
    file.write("images", image_shape, std::vector<double>(foreign_rows * 90, 7), H5T_STD_U8LE,
               images ? created : H5P_DEFAULT);
    file.write("labels", {foreign_rows}, counting(), H5T_STD_I32LE, images ? H5P_DEFAULT : created);
    H5Pclose(created);
    file.close();
    REQUIRE(H5Zunregister(317) >= 0);
    CHECK_THAT(refusal(folder.path / "a.h5"),
               Contains("cannot be read: filter 317 (imaginary) is needed and not installed") &&
                   Contains("HDF5_PLUGIN_PATH"));
  }
}

TEST_CASE("a label without a sign is named as it is written", "[external][label]") {
  const Folder folder;
  Foreign file(folder.path / "a.h5");
  file.write_images();
  std::vector<double> labels(foreign_rows, 1);
  labels[7] = 18446744073709549568.0;  // the largest double below 2^64
  file.write("labels", {foreign_rows}, labels, H5T_STD_U64LE);
  CHECK_THROWS_WITH(DataSet(file.close()),
                    Contains("a.h5: row 7 of /labels is 18446744073709549568: labels are whole"));
}

TEST_CASE("one wrong label does not make a million classes", "[external][label]") {
  const Folder folder;
  std::vector<double> labels = counting();
  labels[8] = 1e6;
  Foreign file(folder.path / "a.h5");
  file.write_images();
  file.write("labels", {foreign_rows}, labels);
  CHECK_THAT(refusal(file.close()),
             Contains("a.h5: row 8 has label 1000000, which makes 1000001 classes, but only 4 of "
                      "them have rows") &&
                 Contains("--data.classes 1000001"));
  ExternalSpec spec;
  spec.classes = 1000001;
  CHECK(DataSet(folder.path / "a.h5", spec).info().classes.size() == 1000001);
}

TEST_CASE("some classes without rows are no error", "[external][label]") {
  const Folder folder;
  Foreign file(folder.path / "a.h5");
  file.write_images();
  file.write("labels", {foreign_rows}, counting(400));
  CHECK(DataSet(file.close()).info().classes.size() == 801);
}
