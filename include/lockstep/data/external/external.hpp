#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// Which numbers in place of a label say that it is not known: none, which makes each an error; -1;
/// NaN; or both.
enum class UnknownLabels { none, minus_one, nan, both };

/// The part of a data set's rows that is meant: all, those that are not held out, those that are.
enum class RowsPart : std::uint8_t { all, kept, held_out };

/// How to read a data set. What is not about `clip`, `curve` and held-out rows concerns HDF5 files
/// that are not shards: one data set of images, one of labels. Rows become elements [height, width,
/// channels]; of some kinds of numbers they are that already.
struct ExternalSpec {
  /// Names of the data sets; empty: found by shape and name. Several for the images, with commas:
  /// the channels of one after those of the other.
  std::string images = {}, labels = {};
  /// The channels of an image, by name or number, from 0, with commas; empty: all.
  std::string channels = {};
  /// `labels` was said of the training set, while these are other images: an error if it names a
  /// file (see labels_place).
  bool labels_of_training = false;
  std::string layout = "auto";  ///< auto, nhwc, nchw
  /// What the numbers become: auto, or the name of an Element. Every number must fit exactly, but
  /// for float64, which is rounded to float32, and for floats that become the levels of uint8.
  /// auto: uint8 where the looked-at numbers are 256 levels and not of 16 bits, or where `range` is
  /// given; else the smallest element that holds the file's kind of numbers.
  std::string element = "auto";
  std::string range = "auto";  ///< of floats that become uint8: auto, 0-1, 0-255, -1-1
  /// The number that stands for no data, or nan; none: what the file's attributes say stands for no
  /// data is data; empty: that is an error where it occurs.
  std::string no_data = {};
  /// What happens to values before mean and deviation, which are then those of at most 1024 rows:
  /// see asked_limits(). Empty: no limits.
  std::string clip = {};
  Curve curve = Curve::linear;
  /// The rows that are meant where a share of each class is held out: a function of the seed and
  /// the labels.
  RowsPart part = RowsPart::all;
  double held_out = 0;
  std::uint64_t seed = 1;
  /// What a network is to say of a row; nullopt: classes where a label is one whole number, a text
  /// or one-hot in each row, and labels where each row has several 0 and 1.
  std::optional<Task> task = std::nullopt;
  UnknownLabels unknown = UnknownLabels::none;
  /// 0: as many as the file names, or as its labels have texts, else the largest label + 1.
  std::size_t classes = 0;
  /// For a validation set: the training set, which gives its element, task, classes, shaping, means
  /// and deviations.
  /// Null: these are found in the files, mean and deviation from at most 1024 rows.
  const DataSetInfo* like = nullptr;
  bool skips_bad_rows = false;  ///< mean and deviation are found without them; else one is an error
  std::size_t cache_bytes = std::size_t{256} << 20;  ///< for decoded chunks
};

/// Labels that lie in another file than their images are named FILE:NAME.
struct LabelsPlace {
  std::string file;  ///< empty: that of the images
  std::string name;
};
LabelsPlace labels_place(const ExternalSpec& spec);

/// The first setting about how to read images and labels that is not at its default, as
/// "data.images = x"; empty if there is none.
std::string first_setting(const ExternalSpec& spec);

}  // namespace lockstep::data

template <>
struct lockstep::Choices<lockstep::data::UnknownLabels> {
  using enum data::UnknownLabels;
  static constexpr Choice<data::UnknownLabels> all[] = {
      {none, "none"}, {minus_one, "-1"}, {nan, "nan"}, {both, "-1,nan"}};
};
