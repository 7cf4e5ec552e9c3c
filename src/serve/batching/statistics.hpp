#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "lockstep/infer/classifier.hpp"

namespace lockstep::serve {

/// How often something happened, and how long it took in total.
struct Spent {
  std::uint64_t count = 0;
  double seconds = 0;
  void add(double took_s, std::uint64_t times = 1) {
    count += times;
    seconds += took_s;
  }
};

/// What a model has done since it was loaded first; in all its versions.
struct ModelFigures {
  Spent success, fail;  ///< requests, from their arrival to their answer
  /// Successful requests: waiting, preparation of their rows, the batches with some of them, their
  /// answers.
  Spent queue, input, infer, output;
  Spent compute;                              ///< batches
  std::map<std::size_t, Spent> batches;       ///< by the rows in them that were asked for
  std::vector<infer::MemberFigures> members;  ///< of a model that has several networks
  std::uint64_t rows = 0;                     ///< computed
  std::uint64_t refused = 0;                  ///< because the queue was full
  double last_s = 0;                          ///< when the last batch ended, in seconds since 1970
  /// Successful requests that took at most this long.
  static constexpr std::array<double, 12> bounds_s = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                                      0.1,   0.2,   0.5,   1,    2,    5};
  std::array<std::uint64_t, bounds_s.size()> within = {};
  void add_success(double took_s) {
    success.add(took_s);
    for (std::size_t k = 0; k < bounds_s.size(); ++k)
      if (took_s <= bounds_s[k]) ++within[k];
  }
};

/// Figures that several threads add to.
/// **Thread safety:** all methods.
class Statistics {
 public:
  template <class Change>
  void change(const Change& change) {
    const std::scoped_lock lock(mutex_);
    change(figures_);
  }
  ModelFigures figures() const {
    const std::scoped_lock lock(mutex_);
    return figures_;
  }

 private:
  mutable std::mutex mutex_;
  ModelFigures figures_;
};

}  // namespace lockstep::serve
