#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/external/chosen_sets.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace {

/// What is wrong with labels, or values.
struct Faults {
  const ChosenSets& sets;
  [[noreturn]] void refuse(hsize_t row, double number, const std::string& why) const {
    h5::refuse(sets.labels_path,
               fmt::format("row {} of {} has {}: {}", row, shape_text(sets.labels), number, why));
  }
  [[noreturn]] void refuse(const std::string& why) const {
    h5::refuse(sets.labels_path, fmt::format("{} {}", shape_text(sets.labels), why));
  }
};

bool says_unknown(double number, UnknownLabels unknown) {
  if (std::isnan(number)) return unknown == UnknownLabels::nan || unknown == UnknownLabels::both;
  return number == -1 && (unknown == UnknownLabels::minus_one || unknown == UnknownLabels::both);
}

/// A few rows that are not one-hot, or are all 0, are rather mistakes than labels.
void require_labels(const h5::Data& data, const Faults& faults) {
  const hsize_t rows = faults.sets.labels.shape[0];
  hsize_t others = 0, first = 0;
  bool has_one = false;
  read_each_row(data, faults.sets, [&](hsize_t row, std::span<const double> numbers) {
    has_one = has_one || std::ranges::find(numbers, 1.0) != numbers.end();
    if (!only_one(numbers) && others++ == 0) first = row;
    return true;
  });
  constexpr hsize_t few = 10;
  if (others * few <= rows || !has_one)
    faults.refuse(fmt::format(
        "is not one-hot in row {} (one number is 1, the others 0){}; say --data.task labels if "
        "each number of a row is a label, 0 or 1",
        first,
        has_one ? fmt::format(", but in {} of {} rows", rows - others, rows)
                : ", and no row has a 1"));
}

float label_of(const Faults& faults, hsize_t row, double number, UnknownLabels unknown) {
  if (says_unknown(number, unknown)) return std::numeric_limits<float>::quiet_NaN();
  if (number == 0 || number == 1) return static_cast<float>(number);
  if (std::isnan(number) || number == -1)
    faults.refuse(row, number,
                  "a label is 0 or 1; say --data.unknown if such numbers mean that it is not "
                  "known");
  faults.refuse(row, number,
                "a label is 0 or 1; if these are numbers to predict, say --data.task values");
}

float value_of(const Faults& faults, hsize_t row, double number, UnknownLabels unknown) {
  if (says_unknown(number, unknown)) return std::numeric_limits<float>::quiet_NaN();
  if (std::isnan(number))
    faults.refuse(row, number, "say --data.unknown nan if it means that the value is not known");
  const auto value = static_cast<float>(number);
  if (!std::isfinite(value)) faults.refuse(row, number, "a value must be finite as float32");
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

void require_kept(const Faults& faults, const std::vector<Rounding>& values) {
  constexpr double most = 0.01;
  for (std::size_t k = 0; k < values.size(); ++k) {
    const Rounding& of = values[k];
    if (of.squares > 0 && std::sqrt(of.lost) > most * std::sqrt(of.squares))
      faults.refuse(
          fmt::format("holds values that become float32, and rounding value {} so changes it by "
                      "{:.2g}, where its deviation is {:.2g}: take a constant off, such as {:.10g}",
                      k, std::sqrt(of.lost / of.known), std::sqrt(of.squares / of.known), of.mean));
  }
}

}  // namespace

WantedRows read_wanted(const h5::Data& data, const ChosenSets& sets, const ExternalSpec& spec) {
  const Faults faults{sets};
  const Task task = spec.task.value_or(Task::labels);
  const bool values = task == Task::values;
  const std::size_t outputs = columns_of(sets.labels);
  if (!spec.task) require_labels(data, faults);
  if (values && sets.is_guess)
    faults.refuse(
        fmt::format("may be the values to predict: say so by --data.labels {}", sets.labels.name));
  if (values && (spec.unknown == UnknownLabels::minus_one || spec.unknown == UnknownLabels::both))
    faults.refuse(
        "holds values, which may be -1: with data.task = values, only nan can be "
        "unknown");
  const Missing missing = missing_values(data.get());
  WantedRows wanted(task, outputs);
  std::vector<Rounding> rounding(values ? outputs : 0);
  read_each_row(data, sets, [&](hsize_t row, std::span<const double> numbers) {
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      const double number = numbers[k];
      if (std::ranges::find(missing, number) != missing.end() &&
          !says_unknown(number, spec.unknown))
        faults.refuse(row, number,
                      "its attribute _FillValue or missing_value says that this is no number");
      const float taken = values ? value_of(faults, row, number, spec.unknown)
                                 : label_of(faults, row, number, spec.unknown);
      wanted.add(taken);
      if (values && !std::isnan(taken)) rounding[k].add(number, taken);
    }
    return true;
  });
  require_kept(faults, rounding);
  return wanted;
}

}  // namespace lockstep::data
