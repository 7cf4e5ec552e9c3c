#include <blosc.h>
#include <hdf5.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "tests/unit/data/shard_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

constexpr std::size_t row_count = 23, image_height = 5, image_width = 4, image_channels = 3,
                      class_count = 3;

// Rows as in small_info().
std::vector<std::uint8_t> all_pixels() {
  std::vector<std::uint8_t> all;
  for (std::size_t row = 0; row < row_count; ++row) {
    const auto image = pixels(small_info(), row);
    all.insert(all.end(), image.begin(), image.end());
  }
  return all;
}

struct Form {
  hid_t file_type = H5T_STD_U8LE;
  bool channels_first = false;
  std::vector<hsize_t> chunk;
  std::function<void(hid_t created)> filters;
  double scale = 1, shift = 0;  // the file holds pixel * scale + shift
  const char* name = "images";
};

std::vector<hsize_t> shape_of(const Form& form) {
  if (form.channels_first) return {row_count, image_channels, image_height, image_width};
  return {row_count, image_height, image_width, image_channels};
}

std::vector<double> numbers_of(const Form& form) {
  const auto all = all_pixels();
  std::vector<double> numbers(all.size());
  for (std::size_t row = 0; row < row_count; ++row)
    for (std::size_t p = 0; p < image_height * image_width; ++p)
      for (std::size_t c = 0; c < image_channels; ++c) {
        const std::size_t begin = row * image_height * image_width * image_channels;
        const std::size_t to = begin + (form.channels_first ? c * image_height * image_width + p
                                                            : p * image_channels + c);
        numbers[to] = all[begin + p * image_channels + c] * form.scale + form.shift;
      }
  return numbers;
}

hid_t create(hid_t file, const Form& form) {
  const auto shape = shape_of(form);
  const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
  if (!form.chunk.empty()) H5Pset_chunk(created, 4, form.chunk.data());
  if (form.filters) form.filters(created);
  const hid_t space = H5Screate_simple(4, shape.data(), nullptr);
  const hid_t data =
      H5Dcreate2(file, form.name, form.file_type, space, H5P_DEFAULT, created, H5P_DEFAULT);
  REQUIRE(data >= 0);
  H5Sclose(space);
  H5Pclose(created);
  return data;
}

void write_labels(hid_t file, const char* name = "labels", hsize_t rows = row_count) {
  std::vector<int> labels(rows);
  for (std::size_t row = 0; row < rows; ++row) labels[row] = static_cast<int>(row % class_count);
  const hid_t space = H5Screate_simple(1, &rows, nullptr);
  const hid_t data =
      H5Dcreate2(file, name, H5T_STD_I64BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Dwrite(data, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, labels.data());
  H5Dclose(data);
  H5Sclose(space);
}

fs::path write_file_of(const fs::path& path, const Form& form) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t data = create(file, form);
  const auto numbers = numbers_of(form);
  H5Dwrite(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data());
  H5Dclose(data);
  write_labels(file);
  H5Fclose(file);
  return path;
}

void require_rows(const DataSet& set, std::size_t copies = 1) {
  REQUIRE(set.info().rows == copies * row_count);
  REQUIRE(set.info().height == image_height);
  REQUIRE(set.info().width == image_width);
  REQUIRE(set.info().channels == image_channels);
  REQUIRE(set.info().classes == std::vector<std::string>{"0", "1", "2"});
  std::vector<std::uint8_t> image(set.info().row_bytes());
  for (std::size_t i = 0; i < set.info().rows; ++i) {
    const std::size_t row = (i * 7) % set.info().rows;  // not in order
    set.read(row, image);
    REQUIRE(image == pixels(small_info(), row % row_count));
    REQUIRE(set.labels()[row] == static_cast<std::int32_t>(row % row_count % class_count));
  }
}

std::string refusal(const fs::path& path, const ExternalSpec& spec = {}) {
  try {
    const DataSet opened(path, spec);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// Stores chunks that were compressed here, as a plugin of that number would.
template <class Compress>
fs::path write_chunks(const fs::path& path, H5Z_filter_t filter, Compress compress) {
  Form form;
  form.chunk = {4, image_height, image_width, image_channels};
  form.filters = [=](hid_t created) {
    H5Pset_filter(created, filter, H5Z_FLAG_OPTIONAL, 0, nullptr);
  };
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t data = create(file, form);
  auto all = all_pixels();
  const std::size_t bytes = 4 * small_info().row_bytes();
  all.resize((row_count + 3) / 4 * bytes, 0);
  for (hsize_t row = 0; row < row_count; row += 4) {
    const hsize_t origin[] = {row, 0, 0, 0};
    const std::span chunk(&all[row / 4 * bytes], bytes);
    // The filter may have been left out, which a bit of the mask says.
    const bool left_out = row == 8;
    const auto packed =
        left_out ? std::vector<std::uint8_t>(chunk.begin(), chunk.end()) : compress(chunk);
    REQUIRE(H5Dwrite_chunk(data, H5P_DEFAULT, left_out ? 1 : 0, origin, packed.size(),
                           packed.data()) >= 0);
  }
  H5Dclose(data);
  write_labels(file);
  H5Fclose(file);
  return path;
}

}  // namespace

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
      [](hid_t created) { H5Pset_scaleoffset(created, H5Z_SO_INT, 0); }};
  for (const Numbers& numbers : all) {
    for (const bool channels_first : {false, true}) {
      Form form{numbers.type, channels_first, {}, nullptr, numbers.scale, numbers.shift};
      ExternalSpec spec;
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
          REQUIRE(set.storage().through_hdf5 == (i == 4 || !native));
          REQUIRE(set.storage().block_rows == chunk[0]);
          require_rows(set);
        }
      }
    }
  }
}

TEST_CASE("Zstandard and Blosc chunks are decoded without a plugin", "[external]") {
  const Folder folder;
  const auto by_zstd = [](std::span<const std::uint8_t> chunk) {
    std::vector<std::uint8_t> packed(ZSTD_compressBound(chunk.size()));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), chunk.data(), chunk.size(), 3));
    return packed;
  };
  const auto by_blosc = [](std::span<const std::uint8_t> chunk) {
    std::vector<std::uint8_t> packed(chunk.size() + BLOSC_MAX_OVERHEAD);
    packed.resize(
        static_cast<std::size_t>(blosc_compress_ctx(5, BLOSC_SHUFFLE, 1, chunk.size(), chunk.data(),
                                                    packed.data(), packed.size(), "lz4", 0, 1)));
    return packed;
  };
  const DataSet zstd(write_chunks(folder.path / "zstd.h5", 32015, by_zstd));
  CHECK_FALSE(zstd.storage().through_hdf5);
  CHECK(zstd.storage().layout == "chunks of 4 row(s), Zstandard");
  require_rows(zstd);
  const DataSet blosc(write_chunks(folder.path / "blosc.h5", 32001, by_blosc));
  CHECK_FALSE(blosc.storage().through_hdf5);
  require_rows(blosc);
}

TEST_CASE("a damaged chunk is an error that names file and row", "[external]") {
  const Folder folder;
  const auto refused = [&](H5Z_filter_t filter, std::vector<std::uint8_t> bytes) {
    const auto damage = [&](std::span<const std::uint8_t>) { return bytes; };
    // Mean and deviation come from `like`, so opening the set reads no damaged chunk.
    ExternalSpec spec;
    const DataSetInfo like = small_info();
    spec.like = &like;
    const DataSet set(write_chunks(folder.path / "a.h5", filter, damage), spec);
    std::vector<std::uint8_t> image(set.info().row_bytes());
    set.read(9, image);  // its chunk is not compressed
    try {
      set.read(14, image);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const H5Z_filter_t filter : {1, 32000, 32001, 32015}) {
    CAPTURE(filter);
    for (const std::vector<std::uint8_t>& bytes :
         {std::vector<std::uint8_t>{0}, std::vector<std::uint8_t>(7, 0xFF),
          std::vector<std::uint8_t>(500, 0xE0), std::vector<std::uint8_t>(3000, 0x1F)})
      CHECK_THAT(refused(filter, bytes),
                 Contains("a.h5: row 12 to 15 cannot be decoded: it") && Contains("damaged") ||
                     Contains("bytes long instead of 240"));
  }
}

TEST_CASE("a chunk without filters that is stored longer or shorter than it is", "[external]") {
  const Folder folder;
  Form form;
  form.chunk = {4, image_height, image_width, image_channels};
  const fs::path path = folder.path / "a.h5";
  const auto all = all_pixels();
  for (const std::size_t bytes : {1u << 20, 7u}) {
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t data = create(file, form);
    for (hsize_t row = 0; row < row_count; row += 4) {
      const hsize_t origin[] = {row, 0, 0, 0};
      std::vector<std::uint8_t> chunk(all.begin() + static_cast<std::ptrdiff_t>(row * 60),
                                      all.end());
      chunk.resize(bytes, 0);
      REQUIRE(H5Dwrite_chunk(data, H5P_DEFAULT, 0, origin, chunk.size(), chunk.data()) >= 0);
    }
    H5Dclose(data);
    write_labels(file);
    H5Fclose(file);
    // HDF5's own result: the pixels, if they are there, and nothing beyond them.
    if (bytes > 1000) {
      const DataSet set(path);
      CHECK(set.storage().layout == "chunks of 4 row(s), not compressed");
      require_rows(set);
    } else {
      CHECK_NOTHROW(refusal(path));
    }
  }
}

TEST_CASE("chunks that were never written hold the fill value", "[external]") {
  const Folder folder;
  Form form;
  form.file_type = H5T_STD_U16LE;
  for (const std::vector<hsize_t>& chunk :
       {std::vector<hsize_t>{4, image_height, image_width, image_channels},
        {4, 3, image_width, image_channels}}) {
    form.chunk = chunk;
    for (const bool compressed : {false, true}) {
      form.filters = [&](hid_t created) {
        const std::uint16_t value = 77;
        H5Pset_fill_value(created, H5T_NATIVE_UINT16, &value);
        if (compressed) H5Pset_deflate(created, 1);
      };
      const fs::path path = folder.path / "a.h5";
      const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
      const hid_t data = create(file, form);
      const hsize_t start[] = {4, 0, 0, 0}, count[] = {4, 3, image_width, image_channels};
      const hid_t space = H5Dget_space(data), memory = H5Screate_simple(4, count, nullptr);
      H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr);
      const std::vector<std::uint8_t> written(4 * 3 * image_width * image_channels, 9);
      H5Dwrite(data, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, written.data());
      H5Sclose(memory);
      H5Sclose(space);
      H5Dclose(data);
      write_labels(file);
      H5Fclose(file);
      const DataSet set(path);
      std::vector<std::uint8_t> image(set.info().row_bytes());
      for (std::size_t row = 0; row < row_count; ++row) {
        set.read(row, image);
        for (std::size_t i = 0; i < image.size(); ++i) {
          const bool there = row / 4 == 1 && i < 3 * image_width * image_channels;
          REQUIRE(image[i] == (there ? 9 : 77));
        }
      }
    }
  }
}

TEST_CASE("a changed byte under Fletcher-32 is noticed", "[external]") {
  const Folder folder;
  Form form;
  form.chunk = {4, image_height, image_width, image_channels};
  form.filters = [](hid_t created) { H5Pset_fletcher32(created); };
  const fs::path path = write_file_of(folder.path / "a.h5", form);
  std::string bytes = read_text(path);
  const auto image = pixels(small_info(), 13);
  const auto at = bytes.find(std::string(image.begin(), image.end()));
  REQUIRE(at != std::string::npos);
  bytes[at + 7] = static_cast<char>(bytes[at + 7] ^ 0x10);
  write_file(path, bytes);
  CHECK_THAT(refusal(path), Contains("a.h5: row 12 to 15") && Contains("Fletcher-32"));
}

TEST_CASE("LZF is decoded: literals, copies, copies of what they write", "[external]") {
  const Folder folder;
  // 240 bytes: 3 literals, 255 + 9 would be too long: copies of 100 and of 137 bytes.
  const std::vector<std::uint8_t> packed = {2, 10, 20, 30, 7 << 5, 91, 2, 7 << 5, 128, 99};
  ExternalSpec spec;
  const DataSetInfo like = small_info();
  spec.like = &like;
  const DataSet set(write_chunks(folder.path / "a.h5", 32000, [&](auto) { return packed; }), spec);
  CHECK_FALSE(set.storage().through_hdf5);
  std::vector<std::uint8_t> image(set.info().row_bytes());
  for (std::size_t row = 0; row < 4; ++row) {
    set.read(row, image);
    for (std::size_t i = 0; i < image.size(); ++i) {
      const std::size_t at = row * image.size() + i;
      const std::size_t from = at < 103 ? at : at - 100;  // the second copy reaches 100 back
      const std::size_t origin = from < 103 ? from : from - 100;
      REQUIRE(image[i] == 10 * (origin % 3 + 1));
    }
  }
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
               Contains("a.h5: row ") && Contains("holds the number 256, which is not a pixel"));
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
               Contains("a.h5: row 0 holds the number "));
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

TEST_CASE("many threads read chunks through one small cache", "[external][loader]") {
  const Folder folder;
  Form form;
  form.chunk = {3, image_height, image_width, image_channels};
  form.filters = [](hid_t created) { H5Pset_deflate(created, 6); };
  ExternalSpec spec;
  spec.cache_bytes = 500;  // a little more than two blocks
  const DataSet set(write_file_of(folder.path / "a.h5", form), spec);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::uint8_t> image(set.info().row_bytes());
      for (std::size_t i = 0; i < 500; ++i) {
        const std::size_t row = (i * (t + 3)) % row_count;
        if (i % 5 == 0) set.prepare((row + 4) % row_count);
        set.read(row, image);
        if (image != pixels(small_info(), row)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(DataSet(folder.path / "a.h5").prepare(0) == false);  // mean and deviation needed all
}
