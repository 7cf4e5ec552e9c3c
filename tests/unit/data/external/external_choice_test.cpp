#include <catch2/catch.hpp>

#include "tests/unit/data/external/external_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using namespace lockstep::test::external;

namespace {

const std::vector<hsize_t> one_a_row = {foreign_rows};

const std::vector<std::int32_t> counted_labels = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2};

}  // namespace

TEST_CASE("a usual name takes precedence over others of any kind", "[external][label]") {
  const Folder folder;
  Foreign file(folder.path / "a.h5");
  file.write_images("x");
  file.write("y", {foreign_rows, 4}, one_hot(4), H5T_STD_U8LE);
  file.write("id", one_a_row, std::vector<double>(foreign_rows, 5));
  const DataSet one_hot_labels(file.close());
  CHECK(labels_of(one_hot_labels) == counted_labels);
  CHECK(one_hot_labels.say_sets() == "images /x [12, 5, 6, 3], labels /y [12, 4] (one-hot)");

  Foreign masks(folder.path / "b.h5");
  masks.write("images", {foreign_rows, 8, 8}, std::vector<double>(foreign_rows * 64, 9),
              H5T_STD_U8LE);
  masks.write("masks", {foreign_rows, 8, 8, 1}, std::vector<double>(foreign_rows * 64, 1),
              H5T_STD_U8LE);
  masks.write("labels", one_a_row, counting());
  const DataSet grey(masks.close());
  CHECK(grey.say_sets() == "images /images [12, 8, 8], labels /labels [12]");
  std::vector<std::uint8_t> image(64);
  grey.read(3, image);
  CHECK(image == std::vector<std::uint8_t>(64, 9));
}

TEST_CASE("labels that might be others are an error that names them", "[external][label]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  const auto with = [&](const std::function<void(Foreign&)>& write) {
    Foreign file(path);
    file.write_images("x_train");
    write(file);
    file.close();
    return refusal(path);
  };
  const std::vector<double> ones(foreign_rows, 1);
  CHECK_THAT(with([&](Foreign& file) {
               file.write("y_train", {foreign_rows, 4}, one_hot(4));
               file.write("sample_weight", one_a_row, ones, H5T_IEEE_F32LE);
             }),
             Contains("several data sets that may be the labels of /x_train") &&
                 Contains("/sample_weight [12], /y_train [12, 4]") && Contains("--data.labels"));
  CHECK_THAT(with([&](Foreign& file) {
               file.write("label", one_a_row, counting());
               file.write("target", one_a_row, ones);
             }),
             Contains("several data sets") && Contains("/label [12], /target [12]"));
  for (const char* name : {"id", "sample_weight", "set/Index"}) {
    CAPTURE(name);
    CHECK_THAT(with([&](Foreign& file) {
                 H5Gclose(H5Gcreate2(file.id(), "set", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
                 file.write(name, one_a_row, counting());
               }),
               Contains(std::string("/") + name + " [12]") &&
                   Contains(std::string("not that of labels; if it holds the labels, say "
                                        "--data.labels ") +
                            name));
  }
  ExternalSpec spec;
  spec.labels = "set/Index";
  CHECK(labels_of(DataSet(path, spec)) == counted_labels);
  // A matrix that is not one-hot is no rival of labels with an unusual name.
  CHECK(with([&](Foreign& file) {
          file.write("ans", one_a_row, counting());
          file.write("features", {foreign_rows, 5}, std::vector<double>(foreign_rows * 5, 0.5),
                     H5T_IEEE_F32LE);
        }).empty());
}

TEST_CASE("numbers that differ in each row are no labels unless they are named",
          "[external][label]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  const hsize_t rows = 20;
  Foreign file(path);
  file.write("images", {rows, 2, 2, 3}, std::vector<double>(rows * 12, 7), H5T_STD_U8LE);
  std::vector<double> numbers(rows);
  for (std::size_t row = 0; row < rows; ++row) numbers[row] = static_cast<double>(row);
  file.write("observation", {rows}, numbers);
  file.close();
  ExternalSpec spec;
  spec.layout = "nhwc";
  CHECK_THAT(refusal(path, spec), Contains("/observation [20] has another number in each row"));
  spec.labels = "observation";
  CHECK(DataSet(path, spec).info().classes.size() == rows);
}

TEST_CASE("labels may have more dimensions of one value, and lie in another file",
          "[external][label]") {
  const Folder folder;
  const fs::path path = folder.path / "x.h5", labels = folder.path / "y.h5";
  Foreign images(path);
  images.write_images("x");
  images.write("y", {foreign_rows, 1, 1, 1}, counting(), H5T_STD_U8LE);
  CHECK(labels_of(DataSet(images.close())) == counted_labels);
  Foreign alone(path);
  alone.write_images("x");
  alone.close();
  Foreign other(labels);
  other.write("y", {foreign_rows, 1, 1, 1}, counting(), H5T_STD_U8LE);
  other.write("few", {foreign_rows - 1}, std::vector<double>(foreign_rows - 1));
  other.close();
  ExternalSpec spec;
  spec.labels = labels.string() + ":y";
  const DataSet both(path, spec);
  CHECK(labels_of(both) == counted_labels);
  CHECK(both.say_sets() ==
        "images /x [12, 5, 6, 3], labels /y [12, 1, 1, 1] in " + labels.string());
  spec.labels_of_training = true;
  CHECK_THAT(refusal(path, spec), Contains("x.h5: data.labels = ") &&
                                      Contains("are the labels of other images") &&
                                      Contains("--data.val-labels"));
  spec.labels_of_training = false;
  spec.labels = labels.string() + ":few";
  CHECK_THAT(refusal(path, spec), Contains("y.h5: /few [11] is not one label for each of the 12"));
  spec.labels = labels.string() + ":gone";
  CHECK_THAT(refusal(path, spec), Contains("y.h5: the data set /gone is missing"));
  spec.labels = (folder.path / "z.h5").string() + ":y";
  CHECK_THAT(refusal(path, spec), Contains("z.h5: cannot be read: No such file"));
  fs::copy(path, folder.path / "x2.h5");
  spec.labels = labels.string() + ":y";
  CHECK_THAT(refusal(folder.path / "x*.h5", spec), Contains("x2.h5") && Contains("of one file"));
}

TEST_CASE("all files of a data set have one name of images and of labels", "[external][label]") {
  const Folder folder;
  for (const char* name : {"a", "b"}) {
    Foreign file(folder.path / (std::string(name) + ".h5"));
    file.write_images("images");
    file.write(name, one_a_row, counting());
  }
  CHECK_THAT(refusal(folder.path), Contains("b.h5: has images /images and labels /b, but ") &&
                                       Contains("a.h5 in the same data set has images /images and "
                                                "labels /a; name them by --data.images"));
}

TEST_CASE("numbers that stand for no data are an error that names the row", "[external]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  const auto mark = [](hid_t file, const char* set, double value, hid_t type) {
    const hid_t data = H5Dopen2(file, set, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
    const hid_t attribute = H5Acreate2(data, "_FillValue", type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, H5T_NATIVE_DOUBLE, &value);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Dclose(data);
  };
  const auto with = [&](const char* set, double value, hid_t type) {
    Foreign file(path);
    std::vector<double> numbers(foreign_rows * 90, 7), labels = counting();
    numbers[5 * 90 + 4] = labels[5] = 200;
    file.write("images", image_shape, numbers, H5T_STD_U8LE);
    file.write("labels", one_a_row, labels, H5T_STD_U8LE);
    mark(file.id(), set, value, type);
    file.close();
    return refusal(path);
  };
  CHECK_THAT(with("images", 200, H5T_STD_U8LE),
             Contains("a.h5: row 5 has 200 in channel 1, which the attribute _FillValue"));
  CHECK_THAT(with("labels", 200, H5T_STD_I32LE),
             Contains("a.h5: row 5 of /labels is 200, which its attribute _FillValue"));
  CHECK(with("images", 65535, H5T_STD_U16LE).empty());
  CHECK(with("labels", 255, H5T_STD_U8LE).empty());
}

TEST_CASE("a file of MATLAB is named as one, as its arrays are turned over", "[external]") {
  const Folder folder;
  const hid_t created = H5Pcreate(H5P_FILE_CREATE);
  H5Pset_userblock(created, 512);
  const fs::path path = folder.path / "a.mat";
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, created, H5P_DEFAULT);
  H5Pclose(created);
  H5Fclose(file);
  std::string bytes = read_text(path);
  bytes.replace(0, 20, "MATLAB 7.3 MAT-file,");
  write_file(path, bytes);
  CHECK_THAT(refusal(path), Contains("a.mat: is a MATLAB 7.3 file") && Contains("transposed"));
}

TEST_CASE("names of classes that come twice are an error, and a name for each row lists none",
          "[external][label]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  const auto with = [&](std::size_t names) {
    Foreign file(path);
    file.write_images();
    file.write("labels", one_a_row, counting());
    const hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, 1);
    const hsize_t count = names;
    const hid_t space = H5Screate_simple(1, &count, nullptr);
    const hid_t data =
        H5Dcreate2(file.id(), "classes", text, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(data, text, H5S_ALL, H5S_ALL, H5P_DEFAULT, "abcabcabcabc");
    H5Dclose(data);
    H5Sclose(space);
    H5Tclose(text);
    file.close();
  };
  with(4);
  CHECK_THAT(refusal(path), Contains("a.h5: /classes names the class 'a' twice"));
  with(foreign_rows);
  CHECK(DataSet(path).info().classes == std::vector<std::string>{"0", "1", "2"});
}
