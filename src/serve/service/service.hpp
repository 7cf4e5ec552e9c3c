#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/http.hpp"
#include "serve/batching/readers.hpp"
#include "serve/protocol/route.hpp"
#include "serve/service/infer.hpp"
#include "serve/service/repository.hpp"

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

/// Answers the protocol's requests. Documents are made at once, on the server's thread. Inferences
/// are computed by the batcher. The readers read and write them, and prepare images, a few at a
/// time; but short ones are read on the server's thread, and short answers written on the
/// batcher's. What is late, or has no client any more, is worked on no further than to the end of a
/// step.
class Service final : public HttpService {
 public:
  /// The references must outlive it.
  Service(const ServeSpec& spec, Repository& repository, Batcher& batcher, Readers& readers)
      : spec_(spec), repository_(repository), batcher_(batcher), readers_(readers) {}
  /// From now on it says that it is not ready, and answers.
  void become_unready() { ready_ = false; }
  /// From now on it refuses inferences.
  void close() { closed_ = true; }
  /// Answers 504 to those that no thread has computed in time, also while one works on them. Called
  /// often, on any thread.
  void end_late(double now_s);
  /// Answers 503 to all that wait; returns how many they were.
  std::size_t give_up();

  Begun begin(const HttpRequest& request) override;
  HttpResponse error(unsigned status, const std::string& what) override;

 private:
  using Respond = HttpVisit::Respond;
  class Visit;
  using One = Underway::One;
  HttpResponse document(const Route& route);
  bool knows_token(const HttpRequest& request) const;
  bool knows_host(const HttpRequest& request) const;
  void take(const One& passing, HttpRequest request);
  void read(const One& passing, HttpRequest request);
  void prepare(const One& passing);
  void queue(const One& passing);
  void leave(const One& passing, RowsJob::End end);
  void forget(const One& passing);
  void answer(const One& passing, RowsJob::End end);
  void finish(const One& passing, HttpResponse response);
  void fail(const One& passing, const std::exception& fault);
  HttpResponse late(const Passing& passing);

  const ServeSpec& spec_;
  Repository& repository_;
  Batcher& batcher_;
  Readers& readers_;
  Underway underway_;
  std::atomic<bool> ready_{true}, closed_{false};
};

}  // namespace lockstep::serve
