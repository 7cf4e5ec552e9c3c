#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "lockstep/base/http.hpp"
#include "serve/protocol/route.hpp"
#include "serve/service/passing.hpp"
#include "serve/service/repository.hpp"

namespace lockstep::serve {

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
