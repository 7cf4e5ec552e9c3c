#pragma once

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

namespace lockstep::test::external {

namespace fs = std::filesystem;
using namespace lockstep::data;

inline constexpr std::size_t row_count = 23, image_height = 5, image_width = 4, image_channels = 3,
                             class_count = 3;

// Rows as in small_info().
inline std::vector<std::uint8_t> all_pixels() {
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

inline std::vector<hsize_t> shape_of(const Form& form) {
  if (form.channels_first) return {row_count, image_channels, image_height, image_width};
  return {row_count, image_height, image_width, image_channels};
}

inline std::vector<double> numbers_of(const Form& form) {
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

inline hid_t create(hid_t file, const Form& form) {
  const auto shape = shape_of(form);
  const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
  if (!form.chunk.empty())
    H5Pset_chunk(created, 4, form.chunk.data());
  else
    H5Pset_alloc_time(created, H5D_ALLOC_TIME_EARLY);  // as if it were written
  if (form.filters) form.filters(created);
  const hid_t space = H5Screate_simple(4, shape.data(), nullptr);
  const hid_t data =
      H5Dcreate2(file, form.name, form.file_type, space, H5P_DEFAULT, created, H5P_DEFAULT);
  REQUIRE(data >= 0);
  H5Sclose(space);
  H5Pclose(created);
  return data;
}

inline void write_labels(hid_t file, const char* name = "labels", hsize_t rows = row_count) {
  std::vector<int> labels(rows);
  for (std::size_t row = 0; row < rows; ++row) labels[row] = static_cast<int>(row % class_count);
  const hid_t space = H5Screate_simple(1, &rows, nullptr);
  const hid_t data =
      H5Dcreate2(file, name, H5T_STD_I64BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Dwrite(data, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, labels.data());
  H5Dclose(data);
  H5Sclose(space);
}

inline fs::path write_file_of(const fs::path& path, const Form& form) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t data = create(file, form);
  const auto numbers = numbers_of(form);
  H5Dwrite(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data());
  H5Dclose(data);
  write_labels(file);
  H5Fclose(file);
  return path;
}

inline void require_rows(const DataSet& set, std::size_t copies = 1) {
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

inline std::vector<std::int32_t> labels_of(const DataSet& set) {
  return {set.labels().begin(), set.labels().end()};
}

inline std::string refusal(const fs::path& path, const ExternalSpec& spec = {}) {
  try {
    const DataSet opened(path, spec);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

inline constexpr hsize_t foreign_rows = 12;
inline const std::vector<hsize_t> image_shape = {foreign_rows, 5, 6, 3};

/// A file of another program that is being written.
class Foreign {
 public:
  explicit Foreign(fs::path path)
      : path_(std::move(path)),
        file_(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  ~Foreign() { close(); }

  void write(const char* name, const std::vector<hsize_t>& shape, const std::vector<double>& values,
             hid_t type = H5T_STD_I32LE, hid_t created = H5P_DEFAULT) {
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t data = H5Dcreate2(file_, name, type, space, H5P_DEFAULT, created, H5P_DEFAULT);
    REQUIRE(data >= 0);
    H5Dwrite(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    H5Dclose(data);
    H5Sclose(space);
  }
  void write_images(const char* name = "images") {
    write(name, image_shape, std::vector<double>(foreign_rows * 90, 7), H5T_STD_U8LE);
  }
  void link(const char* name, const char* to, const char* object) {
    H5Lcreate_external(to, object, file_, name, H5P_DEFAULT, H5P_DEFAULT);
  }
  hid_t id() const { return file_; }
  const fs::path& close() {
    if (file_ >= 0) H5Fclose(file_);
    file_ = -1;
    return path_;
  }

 private:
  fs::path path_;
  hid_t file_;
};

inline std::vector<double> counting(double step = 1) {
  std::vector<double> labels;
  for (std::size_t row = 0; row < foreign_rows; ++row)
    labels.push_back(static_cast<double>(row % 3) * step);
  return labels;
}

/// Row r has a 1 at column r mod 3.
inline std::vector<double> one_hot(std::size_t columns) {
  std::vector<double> values(foreign_rows * columns);
  for (std::size_t row = 0; row < foreign_rows; ++row) values[row * columns + row % 3] = 1;
  return values;
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

}  // namespace lockstep::test::external
