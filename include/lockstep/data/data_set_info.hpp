#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/data/shaping.hpp"

namespace lockstep::data {

/// How a data set's images lie in their files; of several files, the one that is slowest to read.
struct Storage {
  std::string layout;          ///< "contiguous", "chunks of 16 row(s), gzip"
  bool contiguous = true;      ///< any thread reads a row alone, nothing is decoded first
  bool through_hdf5 = false;   ///< HDF5 decodes, one thread at a time
  bool converted = false;      ///< numbers are widened, or planes become pixels
  std::size_t block_rows = 1;  ///< rows that are decoded together
  std::size_t cache_bytes = 0;
  bool checksums = true;  ///< each row has its CRC-32C
};

/// The result of copy_to().
struct NodeCopy {
  bool fits = false;
  std::uint64_t bytes = 0;      ///< that the copy takes
  std::uint64_t there = 0;      ///< of these, copied by an earlier run or another rank
  std::uint64_t available = 0;  ///< free space at the target
};

/// How a shard stores its images: as pixels, all of one size, or as JPEG files of any size.
enum class Encoding { raw, jpeg };

/// The kind of number that a data set has for each channel of a pixel, from its files to the
/// device, which normalises it.
enum class Element : std::uint8_t { u8, u16, i16, f16, f32 };

constexpr std::size_t bytes_of(Element element) {
  return element == Element::u8 ? 1 : element == Element::f32 ? 4 : 2;
}
constexpr bool is_float(Element element) {
  return element == Element::f16 || element == Element::f32;
}

/// What a network says of an image: which class it is; of each label, whether it applies; numbers.
enum class Task : std::uint8_t { classes, labels, values };

/// The most channels of an image that a network takes.
inline constexpr std::size_t most_channels = 64;

/// Whether values enter the network as those of bytes do, in units of 1 / 255: they are uint8 that
/// keep their shape.
inline bool enter_as_bytes(Element element, const Shaping& shaping) {
  return element == Element::u8 && !shaping.any();
}

/// What all shards of a data set agree on, and what normalisation needs. data/README.md specifies
/// the file format.
struct DataSetInfo {
  std::size_t rows = 0, height = 0, width = 0, channels = 0;  ///< height, width: 0 with jpeg
  Encoding encoding = Encoding::raw;
  Element element = Element::u8;
  std::vector<std::string> channel_names = {};  ///< one for each channel; empty: they have none
  Task task = Task::classes;
  /// Names of what the network says: the classes, of which a row's label is one, the labels, or the
  /// values.
  std::vector<std::string> classes = {};
  /// What happens to each value before mean and deviation.
  Shaping shaping = {};
  /// Per channel, over the training rows (the validation set carries the training set's): of
  /// value / 255 where the elements are uint8 and keep their shape, else of the shaped values.
  std::vector<float> mean = {}, stddev = {};
  /// Of each value, over the training rows in which it is known; empty with another task.
  std::vector<float> target_mean = {}, target_stddev = {};
  /// The value that stands for no data, or NaN where that is not a number: left out of mean and
  /// deviation, and 0 to the network.
  std::optional<float> no_data = {};
  /// Of all labels in their order and, of shards, of the rows' checksums; 0: not known. Images in
  /// other programs' files are not in it: they have no checksums.
  std::uint64_t rows_hash = 0;
  /// How many numbers Batch::wanted has for a row.
  std::size_t wanted_values() const { return task == Task::classes ? 0 : classes.size(); }
  /// Values can be mixed with each other: they are uint8 as they are, and none stands for no data.
  bool has_plain_bytes() const { return element == Element::u8 && !no_data && !shaping.any(); }
  bool enter_as_bytes() const { return data::enter_as_bytes(element, shaping); }
  std::size_t row_values() const { return height * width * channels; }
  std::size_t pixel_bytes() const { return channels * bytes_of(element); }
  std::size_t row_bytes() const { return height * width * pixel_bytes(); }
};

/// "none", "nan", "-9999": see DataSetInfo::no_data.
std::string say_no_data(const DataSetInfo& info);
/// "3 classes", "19 labels", "1 value": how much a network says of an image.
std::string say_outputs(std::size_t count, Task task);
/// "uint16", "uint8 with values of no data": what is to be said where has_plain_bytes() is false.
std::string say_values(const DataSetInfo& info);

}  // namespace lockstep::data

template <>
struct lockstep::Choices<lockstep::data::Element> {
  using enum data::Element;
  static constexpr Choice<data::Element> all[] = {
      {u8, "uint8"}, {u16, "uint16"}, {i16, "int16"}, {f16, "float16"}, {f32, "float32"}};
};

template <>
struct lockstep::Choices<lockstep::data::Task> {
  using enum data::Task;
  static constexpr Choice<data::Task> all[] = {
      {classes, "classes"}, {labels, "labels"}, {values, "values"}};
};
