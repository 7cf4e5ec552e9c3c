#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/external/chosen_sets.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace {

/// Numbers of labels, or values, one row after the other.
class WantedReader {
 public:
  WantedReader(const h5::Data& data, const ChosenSets& sets)
      : data_(data),
        path_(sets.labels_path),
        set_(sets.labels),
        outputs_(may_be_one_hot(set_, set_.shape[0]) ? set_.shape[1] : 1) {}
  std::size_t outputs() const { return outputs_; }
  /// `take`: called with each row's number and its numbers.
  void each_row(auto&& take) const {
    constexpr hsize_t block_values = 1 << 20;
    const hsize_t block = std::max<hsize_t>(1, block_values / outputs_);
    std::vector<double> numbers;
    for (hsize_t first = 0; first < set_.shape[0]; first += block) {
      read_reals(data_, path_, set_, first, std::min(block, set_.shape[0] - first), numbers);
      for (std::size_t at = 0; at < numbers.size(); at += outputs_)
        take(first + at / outputs_, std::span<const double>(numbers).subspan(at, outputs_));
    }
  }
  [[noreturn]] void refuse(hsize_t row, double number, const std::string& why) const {
    h5::refuse(path_, fmt::format("row {} of {} has {}: {}", row, shape_text(set_), number, why));
  }
  [[noreturn]] void refuse(const std::string& why) const {
    h5::refuse(path_, fmt::format("{} {}", shape_text(set_), why));
  }

 private:
  const h5::Data& data_;
  const std::filesystem::path& path_;
  const StoredSet& set_;
  std::size_t outputs_;
};

bool says_unknown(double number, UnknownLabels unknown) {
  if (std::isnan(number)) return unknown == UnknownLabels::nan || unknown == UnknownLabels::both;
  return number == -1 && (unknown == UnknownLabels::minus_one || unknown == UnknownLabels::both);
}

/// A few rows that are not one-hot, or are all 0, are rather mistakes than labels.
void require_labels(const WantedReader& reader, hsize_t rows) {
  hsize_t others = 0, first = 0;
  bool has_one = false;
  reader.each_row([&](hsize_t row, std::span<const double> numbers) {
    has_one = has_one || std::ranges::find(numbers, 1.0) != numbers.end();
    if (!only_one(numbers) && others++ == 0) first = row;
  });
  constexpr hsize_t few = 10;
  if (others * few <= rows || !has_one)
    reader.refuse(fmt::format(
        "is not one-hot in row {} (one number is 1, the others 0){}; say --data.task labels if "
        "each number of a row is a label, 0 or 1",
        first,
        has_one ? fmt::format(", but in {} of {} rows", rows - others, rows)
                : ", and no row has a 1"));
}

float label_of(const WantedReader& reader, hsize_t row, double number, UnknownLabels unknown) {
  if (says_unknown(number, unknown)) return std::numeric_limits<float>::quiet_NaN();
  if (number == 0 || number == 1) return static_cast<float>(number);
  if (std::isnan(number) || number == -1)
    reader.refuse(row, number,
                  "a label is 0 or 1; say --data.unknown if such numbers mean that it is not "
                  "known");
  reader.refuse(row, number,
                "a label is 0 or 1; if these are numbers to predict, say --data.task values");
}

float value_of(const WantedReader& reader, hsize_t row, double number, UnknownLabels unknown) {
  if (says_unknown(number, unknown)) return std::numeric_limits<float>::quiet_NaN();
  if (std::isnan(number))
    reader.refuse(row, number, "say --data.unknown nan if it means that the value is not known");
  const auto value = static_cast<float>(number);
  if (!std::isfinite(value)) reader.refuse(row, number, "a value must be finite as float32");
  return value;
}

/// What the numbers of one value lose as float32, compared with how much they differ.
struct Rounding {
  double known = 0, mean = 0, squares = 0, lost = 0;  ///< squares: of the distances from the mean
  void add(double number, float kept) {
    const double off = number - mean, change = number - double{kept};
    known += 1;
    mean += off / known;
    squares += off * (number - mean);
    lost += change * change;
  }
};

void require_kept(const WantedReader& reader, const std::vector<Rounding>& values) {
  constexpr double most = 0.01;
  for (std::size_t k = 0; k < values.size(); ++k) {
    const Rounding& of = values[k];
    if (of.squares > 0 && std::sqrt(of.lost) > most * std::sqrt(of.squares))
      reader.refuse(
          fmt::format("holds values that become float32, and rounding value {} so changes it by "
                      "{:.2g}, where its deviation is {:.2g}: take a constant off, such as {:.10g}",
                      k, std::sqrt(of.lost / of.known), std::sqrt(of.squares / of.known), of.mean));
  }
}

}  // namespace

WantedRows read_wanted(const h5::Data& data, const ChosenSets& sets, const ExternalSpec& spec) {
  const WantedReader reader(data, sets);
  const Task task = spec.task.value_or(Task::labels);
  const bool values = task == Task::values;
  if (!spec.task) require_labels(reader, sets.labels.shape[0]);
  if (values && sets.is_guess)
    reader.refuse(
        fmt::format("may be the values to predict: say so by --data.labels {}", sets.labels.name));
  if (values && (spec.unknown == UnknownLabels::minus_one || spec.unknown == UnknownLabels::both))
    reader.refuse(
        "holds values, which may be -1: with data.task = values, only nan can be "
        "unknown");
  const Missing missing = missing_values(data.get());
  WantedRows wanted(task, reader.outputs());
  std::vector<Rounding> rounding(values ? reader.outputs() : 0);
  reader.each_row([&](hsize_t row, std::span<const double> numbers) {
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      const double number = numbers[k];
      if (std::ranges::find(missing, number) != missing.end() &&
          !says_unknown(number, spec.unknown))
        reader.refuse(row, number,
                      "its attribute _FillValue or missing_value says that this is no number");
      const float taken = values ? value_of(reader, row, number, spec.unknown)
                                 : label_of(reader, row, number, spec.unknown);
      wanted.add(taken);
      if (values && !std::isnan(taken)) rounding[k].add(number, taken);
    }
  });
  require_kept(reader, rounding);
  return wanted;
}

}  // namespace lockstep::data
