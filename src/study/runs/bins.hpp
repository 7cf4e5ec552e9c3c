#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "lockstep/observe/records.hpp"

/// A course of any length in a bounded number of pieces.
namespace lockstep::study {

/// What a piece keeps of single values: where its extremes are, so that none is lost.
struct Extremes {
  std::uint64_t least_step = 0, most_step = 0, count = 0;  ///< count: of finite values
  double least = 0, most = 0, sum = 0;

  void add(std::uint64_t step, double value) {
    if (std::isfinite(value)) merge({step, step, 1, value, value, value});
  }
  void merge(const Extremes& more) {
    if (more.count == 0) return;
    if (count == 0 || more.least < least) least = more.least, least_step = more.least_step;
    if (count == 0 || more.most > most) most = more.most, most_step = more.most_step;
    sum += more.sum;
    count += more.count;
  }
  double mean() const { return sum / static_cast<double>(count); }
};

/// What a piece keeps of the times of steps.
struct PhaseSums {
  observe::StepTimes sum;
  std::uint64_t count = 0;
  void add(std::uint64_t, const observe::StepTimes& times) { merge({times, 1}); }
  void merge(const PhaseSums& more) {
    sum += more.sum;
    count += more.count;
  }
  observe::StepTimes mean() const { return sum / static_cast<double>(count); }
};

/// At most `most` pieces of equally many steps, which double whenever that is too few: nothing has
/// to be known of the length beforehand.
template <class Piece>
class Bins {
 public:
  explicit Bins(std::size_t most) : most_(most) {}
  /// `step` is counted from 1.
  template <class Value>
  void add(std::uint64_t step, const Value& value) {
    if (step == 0) return;
    while ((step - 1) / width_ >= most_) halve();
    const auto index = static_cast<std::size_t>((step - 1) / width_);
    if (index >= pieces_.size()) pieces_.resize(index + 1);
    pieces_[index].add(step, value);
  }
  /// Steps of a piece: piece k has the steps from k * width() + 1 on.
  std::uint64_t width() const { return width_; }
  /// A piece without values has a count of 0.
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  void halve() {
    for (std::size_t k = 0; k < pieces_.size(); ++k)
      if (k % 2 == 0)
        pieces_[k / 2] = pieces_[k];
      else
        pieces_[k / 2].merge(pieces_[k]);
    pieces_.resize((pieces_.size() + 1) / 2);
    width_ *= 2;
  }
  std::size_t most_;
  std::uint64_t width_ = 1;
  std::vector<Piece> pieces_;
};

}  // namespace lockstep::study
