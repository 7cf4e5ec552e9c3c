// Labels that are texts, in other programs' HDF5 files.
#include <fmt/format.h>
#include <hdf5.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "tests/unit/data/external/external_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using lockstep::test::external::refusal;

namespace {

using Texts = std::vector<std::string>;

enum class Stored { variable, fixed };

void write_texts(hid_t file, const char* name, const Texts& texts, Stored how = Stored::variable,
                 bool column = false) {
  constexpr std::size_t size = 8;
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, how == Stored::variable ? H5T_VARIABLE : size);
  const hsize_t shape[] = {texts.size(), 1};
  const hid_t space = H5Screate_simple(column ? 2 : 1, shape, nullptr);
  const hid_t data = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(data >= 0);
  std::vector<const char*> pointers;
  std::vector<char> characters(size * texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    pointers.push_back(texts[i].c_str());
    if (how == Stored::fixed) std::strncpy(&characters[size * i], texts[i].c_str(), size);
  }
  H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT,
           how == Stored::variable ? static_cast<const void*>(pointers.data())
                                   : static_cast<const void*>(characters.data()));
  H5Dclose(data);
  H5Sclose(space);
  H5Tclose(type);
}

/// A file with an image for each label, and what `more` writes.
fs::path write_h5(const fs::path& path, const Texts& labels,
                  const std::function<void(hid_t)>& more = {}, const char* name = "labels",
                  Stored how = Stored::variable, bool column = false) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t shape[] = {labels.size(), 5, 6, 3};
  const hid_t space = H5Screate_simple(4, shape, nullptr);
  const hid_t data =
      H5Dcreate2(file, "images", H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const std::vector<std::uint8_t> pixels(labels.size() * 90, 7);
  H5Dwrite(data, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, pixels.data());
  H5Dclose(data);
  H5Sclose(space);
  if (!labels[0].starts_with('#')) write_texts(file, name, labels, how, column);
  if (more) more(file);
  H5Fclose(file);
  return path;
}

const Texts flowers = {"rose", "daisy", "tulip", "daisy", "rose"};

}  // namespace

TEST_CASE("labels that are texts are classes in the order of their names", "[external][label]") {
  const Folder folder;
  for (const Stored how : {Stored::variable, Stored::fixed})
    for (const bool column : {false, true}) {
      const DataSet set(write_h5(folder.path / "a.h5", flowers, {}, "labels", how, column));
      CHECK(set.info().classes == Texts{"daisy", "rose", "tulip"});
      CHECK(labels_of(set) == std::vector<std::int32_t>{1, 0, 2, 0, 1});
      CHECK(set.say_order() ==
            "the labels are texts; classes in the order of their names: 0 daisy, 1 rose, 2 tulip");
    }
}

TEST_CASE("all files of a data set have one order of classes, and a validation set its training's",
          "[external][label]") {
  const Folder folder;
  write_h5(folder.path / "a.h5", {"tulip", "rose"});
  write_h5(folder.path / "b.h5", {"aster", "rose"});
  const DataSet training(folder.path);
  CHECK(training.info().classes == Texts{"aster", "rose", "tulip"});
  CHECK(labels_of(training) == std::vector<std::int32_t>{2, 1, 0, 1});
  ExternalSpec spec;
  spec.like = &training.info();
  const fs::path other = write_h5(folder.path / "other.hdf5", {"tulip", "tulip"});
  const DataSet validation(other, spec);
  CHECK(validation.info().classes == training.info().classes);
  CHECK(labels_of(validation) == std::vector<std::int32_t>{2, 2});
  CHECK(validation.say_order().empty());
  CHECK_THAT(refusal(write_h5(other, {"rose", "fern"}), spec),
             Contains("other.hdf5: row 1 has the label \"fern\", which is not a class of the "
                      "training set"));
  write_h5(folder.path / "c.h5", {"#", "#"},
           [](hid_t file) { external::write_labels(file, "labels", 2); });
  CHECK_THAT(refusal(folder.path), Contains("c.h5: and ") && Contains("of one are texts, those "));
}

TEST_CASE("names that the file lists are the classes, in their order", "[external][label]") {
  const Folder folder;
  const auto list = [](const Texts& names) {
    return [names](hid_t file) { write_texts(file, "classes", names); };
  };
  const DataSet set(
      write_h5(folder.path / "a.h5", flowers, list({"tulip", "rose", "7", "daisy", "iris"})));
  CHECK(set.info().classes == Texts{"tulip", "rose", "7", "daisy", "iris"});
  CHECK(labels_of(set) == std::vector<std::int32_t>{1, 3, 0, 3, 1});
  CHECK(set.say_order().empty());
  CHECK_THAT(refusal(write_h5(folder.path / "a.h5", flowers, list({"rose", "daisy"}))),
             Contains("row 2 has the label \"tulip\", which is not a class that the file names"));
}

TEST_CASE("texts that are numbers, empty, or not called labels are no labels",
          "[external][label]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  for (const char* number : {"7", "-1", "0.5"})
    CHECK_THAT(refusal(write_h5(path, {"rose", number})),
               Contains(fmt::format("a.h5: a label is the text \"{}\"", number)));
  CHECK_THAT(refusal(write_h5(path, {"rose", "", "rose"})),
             Contains("row 1 of /labels is an empty text"));
  const auto kinds = [](hid_t file) { external::write_labels(file, "kinds", 5); };
  write_h5(path, flowers, kinds, "file_names");
  CHECK(DataSet(path).info().classes == Texts{"0", "1", "2"});
  ExternalSpec spec;
  spec.labels = "file_names";
  CHECK(DataSet(path, spec).info().classes == Texts{"daisy", "rose", "tulip"});
  spec = {};
  spec.images = "file_names";
  CHECK_THAT(refusal(path, spec), Contains("/file_names [5] holds texts, but data.images must"));
  spec = {};
  spec.classes = 5;
  CHECK_THAT(refusal(write_h5(path, flowers), spec),
             Contains("names 3 classes, but data.classes = 5"));
}
