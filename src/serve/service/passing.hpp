#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/http.hpp"
#include "serve/batching/readers.hpp"
#include "serve/service/infer.hpp"

namespace lockstep::serve {

/// An inference from its arrival to its answer.
struct Passing {
  explicit Passing(const std::shared_ptr<ByteBudget>& budget) : inferring(budget) {}
  std::shared_ptr<const Version> version;
  std::shared_ptr<Statistics> statistics;
  std::shared_ptr<Passage> passage;
  HttpVisit::Respond respond;
  const double arrived_s = now_s();
  std::atomic<double> deadline_s{0};
  std::atomic<bool> queued{false};  ///< the batcher has it, and sees to its deadline
  std::atomic<bool> over{false};    ///< it has its answer, or no client
  double input_s = 0;               ///< preparation of its rows
  Flow flow;
  Inferring inferring;
};

/// Those that have no answer yet. The first to answer one is a thread that works on it, the
/// timer, or the end of the server; or its client leaves.
/// **Thread safety:** all methods.
class Underway {
 public:
  using One = std::shared_ptr<Passing>;
  void add(const One& one) {
    const std::scoped_lock lock(mutex_);
    all_.insert(one);
  }
  /// True for the first that asks: it then answers, or there is no client.
  bool end(const One& one) {
    const std::scoped_lock lock(mutex_);
    if (one->over.exchange(true)) return false;
    all_.erase(one);
    return true;
  }
  /// Those of which the time is over, and which no batcher has.
  std::vector<One> late(double now_s) const {
    return those([&](const Passing& one) { return !one.queued && now_s >= one.deadline_s; });
  }
  std::vector<One> all() const {
    return those([](const Passing&) { return true; });
  }

 private:
  std::vector<One> those(const std::function<bool(const Passing&)>& fits) const {
    const std::scoped_lock lock(mutex_);
    std::vector<One> found;
    for (const One& one : all_)
      if (fits(*one)) found.push_back(one);
    return found;
  }

  mutable std::mutex mutex_;
  std::unordered_set<One> all_;
};

}  // namespace lockstep::serve
