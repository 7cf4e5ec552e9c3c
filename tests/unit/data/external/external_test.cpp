#include <catch2/catch.hpp>

#include "tests/unit/data/external/external_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;
using namespace lockstep::test::external;

TEST_CASE("any numbers, layout and filters give the same pixels", "[external]") {
  const Folder folder;
  struct Numbers {
    hid_t type;
    double scale, shift;
    const char* range;
  };
  const std::vector<Numbers> all = {
      {H5T_STD_U8LE, 1, 0, "auto"},           {H5T_STD_I16BE, 1, 0, "auto"},
      {H5T_STD_I64LE, 1, 0, "auto"},          {H5T_STD_U32LE, 1, 0, "auto"},
      {H5T_IEEE_F32LE, 1, 0, "auto"},         {H5T_IEEE_F32LE, 1 / 255.0, 0, "auto"},
      {H5T_IEEE_F64BE, 1 / 255.0, 0, "auto"}, {H5T_IEEE_F64LE, 2 / 255.0, -1, "-1-1"},
      {H5T_IEEE_F32LE, 1, 0, "0-255"}};
  const std::vector<std::function<void(hid_t)>> filters = {
      nullptr, [](hid_t created) { H5Pset_deflate(created, 6); },
      [](hid_t created) {
        H5Pset_shuffle(created);
        H5Pset_deflate(created, 1);
        H5Pset_fletcher32(created);
      },
      [](hid_t created) { H5Pset_fletcher32(created); },
      // HDF5 1.14.5 cannot read what its filter scale-offset has written with all eight bits.
      [](hid_t created) { H5Pset_nbit(created); }};
  for (const Numbers& numbers : all) {
    for (const bool channels_first : {false, true}) {
      Form form{numbers.type, channels_first, {}, nullptr, numbers.scale, numbers.shift};
      ExternalSpec spec;
      spec.element = "uint8";
      spec.range = numbers.range;
      spec.cache_bytes = 1000;
      if (channels_first) {  // 3 x 5 x 4: either might be the channels
        const auto path = write_file_of(folder.path / "a.h5", form);
        REQUIRE_THAT(refusal(path, spec), Contains("[23, 3, 5, 4]") && Contains("--data.layout"));
        spec.layout = "nchw";
      }
      require_rows(DataSet(write_file_of(folder.path / "a.h5", form), spec));
      const std::vector<hsize_t> rows =
          channels_first ? std::vector<hsize_t>{6, image_channels, image_height, image_width}
                         : std::vector<hsize_t>{6, image_height, image_width, image_channels};
      for (const std::vector<hsize_t>& chunk : {rows, {4, 3, 3, 2}, {1, 1, 4, 3}}) {
        for (std::size_t i = 0; i < filters.size(); ++i) {
          if (i == 4 && numbers.type != H5T_STD_U8LE) continue;
          form.chunk = chunk;
          form.filters = filters[i];
          const DataSet set(write_file_of(folder.path / "a.h5", form), spec);
          CAPTURE(i, channels_first, chunk[0], set.storage().layout);
          const bool native = numbers.type != H5T_STD_I16BE && numbers.type != H5T_IEEE_F64BE;
          REQUIRE(set.storage().through_hdf5 == (i == 4 || (i == 0 && !native)));
          REQUIRE(set.storage().block_rows == chunk[0]);
          require_rows(set);
        }
      }
    }
  }
}

TEST_CASE("held-out rows and the others are all rows, none twice, by seed and class",
          "[external][held-out]") {
  const Folder folder;
  const fs::path path = write_file_of(folder.path / "a.h5", {});
  const auto open = [&](RowsPart part, std::uint64_t seed) {
    ExternalSpec spec;
    spec.part = part;
    spec.held_out = 0.25;
    spec.seed = seed;
    return DataSet(path, spec);
  };
  const auto images_of = [](const DataSet& set) {
    std::vector<std::pair<std::vector<std::uint8_t>, std::int32_t>> rows;
    for (std::size_t row = 0; row < set.info().rows; ++row) {
      rows.emplace_back(std::vector<std::uint8_t>(set.info().row_bytes()), set.labels()[row]);
      set.read(row, rows.back().first);
    }
    return rows;
  };
  const DataSet all = open(RowsPart::all, 1), kept = open(RowsPart::kept, 1),
                held = open(RowsPart::held_out, 1), other = open(RowsPart::held_out, 2);
  auto both = images_of(kept);
  for (const auto& row : images_of(held)) both.push_back(row);
  auto whole = images_of(all);
  std::sort(both.begin(), both.end());
  std::sort(whole.begin(), whole.end());
  CHECK(both == whole);
  CHECK(held.info().rows == 6);  // 2 of each class of 7 or 8
  for (const std::int32_t label : {0, 1, 2}) {
    const std::vector<std::int32_t> labels = labels_of(held);
    CHECK(std::count(labels.begin(), labels.end(), label) == 2);
  }
  CHECK(images_of(open(RowsPart::held_out, 1)) == images_of(held));
  CHECK(images_of(other) != images_of(held));
  CHECK(held.info().rows_hash != other.info().rows_hash);
  CHECK(held.fingerprint() != other.fingerprint());
}

TEST_CASE("virtual data sets and patterns of files", "[external]") {
  const Folder folder;
  write_file_of(folder.path / "part1.h5", {});
  Form compressed;
  compressed.chunk = {5, image_height, image_width, image_channels};
  compressed.filters = [](hid_t created) { H5Pset_deflate(created, 6); };
  write_file_of(folder.path / "part2.hdf5", compressed);
  require_rows(DataSet(folder.path / "part?.h*"), 2);
  CHECK_THAT(refusal(folder.path / "none*.h5"), Contains("no file has such a name"));

  const fs::path path = folder.path / "whole.h5";
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t shape[] = {2 * row_count, image_height, image_width, image_channels};
  const hsize_t part[] = {row_count, image_height, image_width, image_channels};
  const hid_t space = H5Screate_simple(4, shape, nullptr);
  const hid_t source = H5Screate_simple(4, part, nullptr);
  for (hsize_t i = 0; i < 2; ++i) {
    const hsize_t start[] = {i * row_count, 0, 0, 0};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, part, nullptr);
    H5Pset_virtual(created, space, i == 0 ? "part1.h5" : "part2.hdf5", "images", source);
  }
  H5Sselect_all(space);
  const hid_t data =
      H5Dcreate2(file, "images", H5T_STD_U8LE, space, H5P_DEFAULT, created, H5P_DEFAULT);
  REQUIRE(data >= 0);
  H5Dclose(data);
  H5Sclose(source);
  H5Sclose(space);
  H5Pclose(created);
  write_labels(file, "labels", 2 * row_count);
  H5Fclose(file);
  const DataSet set(path);
  CHECK(set.storage().layout == "virtual");
  REQUIRE(set.info().rows == 2 * row_count);
  std::vector<std::uint8_t> image(set.info().row_bytes());
  for (std::size_t row = 0; row < 2 * row_count; ++row) {
    set.read(row, image);
    REQUIRE(image == pixels(small_info(), row % row_count));
  }
  fs::remove(folder.path / "part2.hdf5");
  CHECK_THAT(refusal(path), Contains("whole.h5") && Contains("part2.hdf5, which cannot be read"));
}

TEST_CASE("images and labels are found, or the error lists what there is", "[external]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  H5Gclose(H5Gcreate2(file, "set", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  for (const char* name : {"set/x_train", "set/x_test"}) {
    Form form;
    form.name = name;
    const hid_t data = create(file, form);
    const auto numbers = numbers_of(form);
    H5Dwrite(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data());
    H5Dclose(data);
  }
  write_labels(file, "set/y_train");
  write_labels(file, "weights");
  H5Fclose(file);
  CHECK_THAT(refusal(path), Contains("a.h5: holds several data sets that may be the images") &&
                                Contains("/set/x_test [23, 5, 4, 3], /set/x_train [23, 5, 4, 3]") &&
                                Contains("--data.images"));
  ExternalSpec spec;
  spec.images = "/set/x_train";
  CHECK_THAT(refusal(path, spec), Contains("several") && Contains("/set/y_train [23]") &&
                                      Contains("/weights [23]") && Contains("--data.labels"));
  spec.labels = "set/y_train";
  require_rows(DataSet(path, spec));
  spec.labels = "set/x_test";
  CHECK_THAT(refusal(path, spec), Contains("is not one label for each of the 23 rows"));
  spec.labels = "set/none";
  CHECK_THAT(refusal(path, spec), Contains("/set/none is missing"));
  spec.labels = "set/y_train";
  spec.classes = 2;
  CHECK_THAT(refusal(path, spec), Contains("a.h5: row 2 has label 2, but there are 2 classes"));
  spec.classes = 0;
  spec.images = "weights";
  CHECK_THAT(refusal(path, spec), Contains("images have 4 dimensions"));
}

TEST_CASE("numbers that are not pixels are errors that name file and row", "[external]") {
  const Folder folder;
  const DataSetInfo like = small_info();
  const auto error_of_row = [&](const Form& form, const char* range) {
    ExternalSpec spec;
    spec.range = range;
    spec.like = &like;
    try {
      const DataSet set(write_file_of(folder.path / "a.h5", form), spec);
      std::vector<std::uint8_t> image(set.info().row_bytes());
      for (std::size_t row = 0; row < row_count; ++row) set.read(row, image);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::vector<hsize_t> none, some = {4, image_height, image_width, image_channels};
  for (const auto& chunk : {none, some}) {
    CHECK_THAT(error_of_row({H5T_STD_I16LE, false, chunk, nullptr, 1, 1}, "auto"),
               Contains("a.h5: row ") && Contains("holds the number 256 in channel "));
    CHECK_THAT(error_of_row({H5T_STD_I8LE, false, chunk, nullptr, 0.5, -10}, "auto"),
               Contains("a.h5: row ") && Contains("holds the number -"));
    CHECK_THAT(error_of_row({H5T_IEEE_F32LE, false, chunk, nullptr, 1, 0}, "0-1"),
               Contains("a.h5: row 0 holds the number ") && Contains("0 to 1 are expected"));
    CHECK_THAT(error_of_row({H5T_IEEE_F32LE, false, chunk, nullptr, 1, -100}, "auto"),
               Contains("its floats go from -100 to ") && Contains("if a mean was subtracted"));
    CHECK_THAT(error_of_row({H5T_IEEE_F32LE, false, chunk, nullptr, 0.001, -0.5}, "auto"),
               Contains("its floats go from -0.5 to ") && Contains("--data.range -1-1"));
    CHECK_THAT(error_of_row({H5T_IEEE_F32LE, false, chunk, nullptr, 100, 0}, "auto"),
               Contains("its floats go from 0 to ") && Contains("in one of these ranges"));
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK_THAT(error_of_row({H5T_IEEE_F64LE, false, chunk, nullptr, nan, 0}, "0-255"),
               Contains("a.h5: row 0 has NaN (not a number) in channel 0, as 100 %"));
  }
}

TEST_CASE("invalid labels are errors that name file and row", "[external]") {
  const Folder folder;
  const auto refused = [&](double label) {
    const fs::path path = folder.path / "a.h5";
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Dclose(create(file, {}));
    const hsize_t rows = row_count;
    std::vector<double> labels(rows, 1);
    labels[7] = label;
    const hid_t space = H5Screate_simple(1, &rows, nullptr);
    const hid_t data =
        H5Dcreate2(file, "labels", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, labels.data());
    H5Dclose(data);
    H5Sclose(space);
    H5Fclose(file);
    return refusal(path);
  };
  CHECK(refused(2).empty());
  for (const double label :
       {-1.0, 0.5, 2147483648.0, 1e300, -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()})
    CHECK_THAT(refused(label), Contains("a.h5: row 7 of /labels is "));
}

TEST_CASE("a file that says it has more rows than there can be takes no memory for them",
          "[external]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t shape[] = {hsize_t{1} << 40, 4, 4, 3}, chunk[] = {1, 4, 4, 3}, many = 1 << 20;
  const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
  for (const bool images : {true, false}) {
    H5Pset_chunk(created, images ? 4 : 1, images ? chunk : &many);
    const hid_t space = H5Screate_simple(images ? 4 : 1, shape, nullptr);
    H5Dclose(H5Dcreate2(file, images ? "images" : "labels", H5T_STD_U8LE, space, H5P_DEFAULT,
                        created, H5P_DEFAULT));
    H5Sclose(space);
  }
  H5Pclose(created);
  H5Fclose(file);
  CHECK_THAT(refusal(path),
             Contains("a.h5: /images [1099511627776, 4, 4, 3]") && Contains("at most 2^31 rows"));
}

TEST_CASE("a file of other programs may have more rows than an image has lines", "[external]") {
  const Folder folder;
  const fs::path path = folder.path / "a.h5";
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t shape[] = {70'000, 2, 2, 1};
  const hid_t space = H5Screate_simple(4, shape, nullptr);
  const hid_t data =
      H5Dcreate2(file, "images", H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const std::vector<std::uint8_t> image(4 * 70'000, 5);
  H5Dwrite(data, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, image.data());
  H5Dclose(data);
  H5Sclose(space);
  write_labels(file, "labels", 70'000);
  H5Fclose(file);
  ExternalSpec spec;
  spec.layout = "nhwc";
  CHECK(DataSet(path, spec).info().rows == 70'000);
}

TEST_CASE("a validation set takes the training set's classes, mean and deviation", "[external]") {
  const Folder folder;
  const DataSet training(write_file_of(folder.path / "a.h5", {}));
  const auto all = all_pixels();
  for (std::size_t c = 0; c < image_channels; ++c) {
    double sum = 0;
    for (std::size_t i = c; i < all.size(); i += image_channels) sum += all[i] / 255.0;
    CHECK(training.info().mean[c] ==
          Approx(sum / static_cast<double>(all.size() / image_channels)));
  }
  DataSetInfo like = small_info();
  ExternalSpec spec;
  spec.like = &like;
  const DataSet validation(folder.path / "a.h5", spec);
  CHECK(validation.info().classes == like.classes);
  CHECK(validation.info().mean == like.mean);
  CHECK(validation.info().stddev == like.stddev);
  like.classes = {"one"};
  CHECK_THAT(refusal(folder.path / "a.h5", spec), Contains("row 1 has label 1"));
}
