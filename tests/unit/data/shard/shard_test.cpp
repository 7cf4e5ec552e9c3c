#include "lockstep/data/shard/data_set.hpp"

#include <hdf5.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <functional>
#include <thread>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "tests/unit/data/shard_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

using Edit = std::function<void(hid_t file)>;

void edit_file(const fs::path& path, const Edit& edit) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  REQUIRE(file >= 0);
  edit(file);
  H5Fclose(file);
}

Edit without_data(const char* name) {
  return [=](hid_t file) { H5Ldelete(file, name, H5P_DEFAULT); };
}

Edit without_attribute(const char* name) {
  return [=](hid_t file) { H5Adelete(file, name); };
}

// Replaces a data set by one of another type or shape, filled with zeros.
Edit with_data(const char* name, hid_t type, std::vector<hsize_t> shape) {
  return [=](hid_t file) {
    H5Ldelete(file, name, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_alloc_time(created, H5D_ALLOC_TIME_EARLY);  // as if it were written
    const hid_t data = H5Dcreate2(file, name, type, space, H5P_DEFAULT, created, H5P_DEFAULT);
    H5Dclose(data);
    H5Pclose(created);
    H5Sclose(space);
  };
}

template <class Number>
Edit with_attribute(const char* name, hid_t type, std::vector<Number> values, bool scalar = false) {
  return [=](hid_t file) {
    H5Adelete(file, name);
    const hsize_t count = values.size();
    const hid_t space = scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr);
    const hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, type, values.data());
    H5Aclose(attribute);
    H5Sclose(space);
  };
}

void write_all(hid_t file, const char* name, hid_t type, const void* values) {
  const hid_t data = H5Dopen2(file, name, H5P_DEFAULT);
  H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  H5Dclose(data);
}

// Stores the pixels again, chunked and compressed.
Edit compressed(const DataSetInfo& info, std::size_t rows) {
  return [=](hid_t file) {
    H5Ldelete(file, "images", H5P_DEFAULT);
    const hsize_t shape[] = {rows, info.height, info.width, info.channels};
    const hsize_t chunk[] = {2, info.height, info.width, info.channels};
    const hid_t how = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(how, 4, chunk);
    H5Pset_deflate(how, 4);
    const hid_t space = H5Screate_simple(4, shape, nullptr);
    H5Dclose(H5Dcreate2(file, "images", H5T_STD_U8LE, space, H5P_DEFAULT, how, H5P_DEFAULT));
    H5Sclose(space);
    H5Pclose(how);
    std::vector<std::uint8_t> all;
    for (std::size_t row = 0; row < rows; ++row) {
      const auto image = pixels(info, row);
      all.insert(all.end(), image.begin(), image.end());
    }
    write_all(file, "images", H5T_NATIVE_UINT8, all.data());
  };
}

void flip_a_byte(const fs::path& path, const std::vector<std::uint8_t>& of_image) {
  std::string bytes = read_text(path);
  const auto at = bytes.find(std::string(of_image.begin(), of_image.end()));
  REQUIRE(at != std::string::npos);
  bytes[at + 7] = static_cast<char>(bytes[at + 7] ^ 0x10);
  write_file(path, bytes);
}

std::string refusal(const fs::path& path) {
  try {
    const DataSet opened(path);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a data set gives back every row of its shards, in order of their names", "[shard]") {
  const Folder folder;
  DataSetInfo info = small_info();
  write_shard(folder.path / "b.h5", info, 7, 1);
  write_shard(folder.path / "a.h5", info, 0, 7);
  write_shard(folder.path / "c.h5", info, 8, 40);
  write_file(folder.path / "notes.txt", "not a shard");
  const DataSet set(folder.path);
  CHECK(set.info().rows == 48);
  CHECK(set.info().height == 5);
  CHECK(set.info().width == 4);
  CHECK(set.info().channels == 3);
  CHECK(set.info().classes == info.classes);
  CHECK(set.info().mean == info.mean);
  CHECK(set.info().stddev == info.stddev);
  CHECK(set.files().size() == 3);
  CHECK(set.storage().contiguous);
  std::vector<std::uint8_t> image(info.row_bytes());
  for (std::size_t row = 0; row < 48; ++row) {
    CHECK(set.labels()[row] == static_cast<std::int32_t>(row % 3));
    set.read(row, image);
    REQUIRE(image == pixels(info, row));
  }
  CHECK_THROWS_AS(set.read(48, image), Error);
}

TEST_CASE("compressed rows are read through HDF5, from any number of threads", "[shard]") {
  const Folder folder;
  const DataSetInfo info = small_info();
  write_shard(folder.path / "plain.h5", info, 0, 12);
  edit_file(write_shard(folder.path / "packed.h5", info, 0, 12), compressed(info, 12));
  const DataSet set(folder.path);
  CHECK_FALSE(set.storage().contiguous);
  bool same[2] = {true, true};
  const auto read_all = [&](bool& all_same) {
    std::vector<std::uint8_t> image(info.row_bytes());
    for (std::size_t row = 0; row < 24; ++row) {
      set.read(row, image);
      all_same = all_same && image == pixels(info, row % 12);
    }
  };
  std::thread other([&] { read_all(same[0]); });
  read_all(same[1]);
  other.join();
  CHECK(same[0]);
  CHECK(same[1]);
}

TEST_CASE("a damaged row is an error that names file and row, and only that row", "[shard]") {
  const Folder folder;
  const DataSetInfo info = small_info();
  write_shard(folder.path / "a.h5", info, 0, 10);
  flip_a_byte(write_shard(folder.path / "b.h5", info, 10, 10), pixels(info, 14));
  const DataSet set(folder.path);
  std::vector<std::uint8_t> image(info.row_bytes());
  for (std::size_t row = 0; row < 20; ++row) {
    if (row == 14) {
      CHECK_THROWS_AS(set.read(row, image), InputError);
      CHECK_THROWS_WITH(set.read(row, image),
                        Contains("b.h5: row 4 is damaged") && Contains("CRC-32C"));
    } else {
      CHECK_NOTHROW(set.read(row, image));
    }
  }
}

TEST_CASE("a label changed to another class is an error that names file and row", "[shard]") {
  const Folder folder;
  const DataSetInfo info = small_info();
  const fs::path path = write_shard(folder.path / "a.h5", info, 0, 4);
  const std::int32_t labels[] = {0, 1, 1, 0};  // row 2 had label 2
  edit_file(path, [&](hid_t file) { write_all(file, "labels", H5T_NATIVE_INT32, labels); });
  const DataSet set(path);
  std::vector<std::uint8_t> image(info.row_bytes());
  for (const std::size_t row : {0, 1, 3}) CHECK_NOTHROW(set.read(row, image));
  CHECK_THROWS_WITH(set.read(2, image), Contains("a.h5: row 2 is damaged") && Contains("label"));
}

TEST_CASE("a row's CRC-32C is that of its pixels and its label, lowest byte first", "[shard]") {
  const Folder folder;
  const DataSetInfo info = small_info();
  const fs::path path = write_shard(folder.path / "a.h5", info, 0, 3);
  std::uint32_t stored[3] = {};
  edit_file(path, [&](hid_t file) {
    const hid_t data = H5Dopen2(file, "crc32c", H5P_DEFAULT);
    H5Dread(data, H5T_NATIVE_UINT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, stored);
    H5Dclose(data);
  });
  std::vector<std::uint8_t> bytes = pixels(info, 2);
  for (const std::uint8_t byte : {2, 0, 0, 0}) bytes.push_back(byte);
  CHECK(stored[2] == crc32c(bytes.data(), bytes.size()));
}

TEST_CASE("a shard that shrinks while it is open is an error that names the row", "[shard]") {
  const Folder folder;
  const DataSetInfo info = small_info();
  const fs::path path = write_shard(folder.path / "a.h5", info, 0, 100);
  const DataSet set(path);
  fs::resize_file(path, 100);
  std::vector<std::uint8_t> image(info.row_bytes());
  CHECK_THROWS_WITH(set.read(50, image), Contains("a.h5: row 50") && Contains("shorter"));
}

TEST_CASE("a file that is not a shard is an error that names it", "[shard]") {
  const Folder folder;
  CHECK_THAT(refusal(folder.path / "none.h5"),
             Contains("none.h5") && Contains("No such file or directory"));
  CHECK_THAT(refusal(folder.path), Contains(folder.path.string()) && Contains("no *.h5 file"));
  write_file(folder.path / "text.h5", "label,image\n1,2\n");
  CHECK_THAT(refusal(folder.path / "text.h5"), Contains("text.h5: is not an HDF5 file"));
  write_file(folder.path / "empty.h5", "");
  CHECK_THAT(refusal(folder.path / "empty.h5"), Contains("empty.h5: is not an HDF5 file"));
}

TEST_CASE("a truncated shard is an error, wherever it is cut", "[shard]") {
  const Folder folder;
  const fs::path path = write_shard(folder.path / "a.h5", small_info(), 0, 1000);
  const auto whole = fs::file_size(path);
  for (const auto size : {whole - 1, whole - 5000, whole / 2, whole / 100}) {
    fs::resize_file(path, size);
    CHECK_THAT(refusal(path), Contains("a.h5") && Contains("truncated"));
  }
}

TEST_CASE("every missing or misshapen part of a shard is an error that names it", "[shard]") {
  struct Case {
    Edit edit;
    std::string part, problem;
  };
  const std::vector<Case> cases = {
      {without_data("images"), "/images", "is missing"},
      {without_data("labels"), "/labels", "is missing"},
      {without_data("crc32c"), "/crc32c", "is missing"},
      {without_data("classes"), "/classes", "is missing"},
      {without_attribute("format"), "'format'", "is missing"},
      {without_attribute("format_version"), "'format_version'", "is missing"},
      {without_attribute("mean"), "'mean'", "is missing"},
      {without_attribute("stddev"), "'stddev'", "is missing"},
      {with_data("images", H5T_STD_I8LE, {4, 5, 4, 3}), "/images", "a type other than"},
      {with_data("images", H5T_STD_U16LE, {4, 5, 4, 3}), "/images", "a type other than"},
      {with_data("images", H5T_STD_U8LE, {4, 5, 4}), "/images", "3 dimensions"},
      {with_data("images", H5T_STD_U8LE, {0, 5, 4, 3}), "/images", "no rows"},
      {with_data("images", H5T_STD_U8LE, {4, 5, 0, 3}), "/images", "rows of 5 x 0 x 3"},
      {with_data("images", H5T_STD_U8LE, {4, 5, 4, 1}), "'mean'", "1 channels"},
      {with_data("labels", H5T_STD_I64LE, {4}), "/labels", "a type other than"},
      {with_data("labels", H5T_IEEE_F32LE, {4}), "/labels", "a type other than"},
      {with_data("labels", H5T_STD_I32LE, {4, 1}), "/labels", "2 dimensions"},
      {with_data("labels", H5T_STD_I32LE, {3}), "/labels", "3 rows, but there are 4"},
      {with_data("crc32c", H5T_STD_I32LE, {4}), "/crc32c", "a type other than"},
      {with_data("crc32c", H5T_STD_U32LE, {5}), "/crc32c", "5 rows, but there are 4"},
      {with_data("classes", H5T_STD_I32LE, {3}), "/classes", "a type other than string"},
      {with_data("classes", H5T_C_S1, {0}), "/classes", "names no class"},
      {with_attribute<int>("mean", H5T_NATIVE_INT, {1, 2, 3}), "'mean'", "a type other than"},
      {with_attribute<float>("mean", H5T_NATIVE_FLOAT, {1, 2}), "'mean'", "3 channels"},
      {with_attribute<float>("mean", H5T_NATIVE_FLOAT, {1, NAN, 2}), "'mean'", "not finite"},
      {with_attribute<float>("stddev", H5T_NATIVE_FLOAT, {1, 0, 2}), "'stddev'", "not positive"},
      {with_attribute<int>("format_version", H5T_NATIVE_INT, {1}, true), "format version 1",
       "reads version 2 and 3; pack the data again"},
      {with_attribute<int>("format_version", H5T_NATIVE_INT, {4}, true), "format version 4",
       "or use a newer lockstep"},
      {with_attribute<int>("format_version", H5T_NATIVE_INT, {3}, true), "'task'", ""},
      {with_attribute<int>("format_version", H5T_NATIVE_INT, {1}), "'format_version'",
       "1 dimensions"},
      {with_attribute<char>("format", H5T_C_S1, {'x'}, true), "'format'",
       "is neither 'lockstep-shard'"},
  };
  const Folder folder;
  for (const Case& one : cases) {
    edit_file(write_shard(folder.path / "bad.h5", small_info(), 0, 4), one.edit);
    const std::string message = refusal(folder.path / "bad.h5");
    CHECK_THAT(message, Contains("bad.h5") && Contains(one.part) && Contains(one.problem));
  }
}

TEST_CASE("a label out of range is an error that names the row", "[shard]") {
  const Folder folder;
  for (const std::int32_t bad : {-1, 3}) {
    const fs::path path = write_shard(folder.path / "a.h5", small_info(), 0, 4);
    const std::int32_t labels[] = {0, 2, bad, 1};
    edit_file(path, [&](hid_t file) { write_all(file, "labels", H5T_NATIVE_INT32, labels); });
    CHECK_THAT(refusal(path), Contains("a.h5: row 2 has label " + std::to_string(bad)) &&
                                  Contains("3 classes (0 to 2)"));
  }
}

TEST_CASE("shards that disagree are an error that names both", "[shard]") {
  const auto refused_with = [](const std::function<void(DataSetInfo&)>& change) {
    const Folder folder;
    DataSetInfo info = small_info();
    write_shard(folder.path / "a.h5", info, 0, 3);
    change(info);
    write_shard(folder.path / "b.h5", info, 3, 3);
    const std::string message = refusal(folder.path);
    CHECK_THAT(message, Contains("a.h5") && Contains("b.h5"));
    return message;
  };
  CHECK_THAT(refused_with([](auto& info) { info.height = 6; }),
             Contains("6 x 4 x 3") && Contains("5 x 4 x 3"));
  CHECK_THAT(refused_with([](auto& info) { info.classes[1] = "dog"; }), Contains("dog"));
  CHECK_THAT(refused_with([](auto& info) { info.mean[0] = 0.75f; }), Contains("0.75"));
  CHECK_THAT(refused_with([](auto& info) { info.stddev[2] = 0.5f; }), Contains("stddev"));
}

TEST_CASE("a data set may have more shards than the soft limit on open files", "[shard]") {
  const Folder folder;
  for (int i = 0; i < 40; ++i) {
    write_shard(folder.path / (std::to_string(i) + ".h5"), small_info(), 0, 1);
  }
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit low{30, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &low);
  CHECK(refusal(folder.path) == "");
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("opening a data set does not read its pixels", "[shard]") {
  // 6 GB of pixels, a hole in the file: reading them would take seconds.
  const Folder folder;
  DataSetInfo info = small_info();
  info.height = info.width = 1000;
  const fs::path path = folder.path / "a.h5";
  write_shard(path, info, 0, 2);
  edit_file(path, [&](hid_t file) {
    with_data("labels", H5T_STD_I32LE, {2000})(file);
    with_data("crc32c", H5T_STD_U32LE, {2000})(file);
    H5Ldelete(file, "images", H5P_DEFAULT);
    const hsize_t shape[] = {2000, 1000, 1000, 3};
    const hid_t how = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_alloc_time(how, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(how, H5D_FILL_TIME_NEVER);
    const hid_t space = H5Screate_simple(4, shape, nullptr);
    H5Dclose(H5Dcreate2(file, "images", H5T_STD_U8LE, space, H5P_DEFAULT, how, H5P_DEFAULT));
    H5Sclose(space);
    H5Pclose(how);
  });
  const DataSet set(path);
  CHECK(set.info().rows == 2000);
  CHECK(set.storage().contiguous);
}
