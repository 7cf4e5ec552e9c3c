#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "lockstep/base/http.hpp"
#include "serve/protocol/route.hpp"
#include "serve/service/infer.hpp"
#include "serve/service/readers.hpp"
#include "serve/service/repository.hpp"

namespace lockstep::serve {

/// Answers the protocol's requests. Documents are made at once, on the server's thread. Inferences
/// are computed by the batcher. The readers read and write them, and prepare images; but short ones
/// of pixels are read on the server's thread, and short answers written on the batcher's.
class Service final : public HttpService {
 public:
  /// The references must outlive it.
  Service(const ServeSpec& spec, Repository& repository, Batcher& batcher, Readers& readers)
      : spec_(spec), repository_(repository), batcher_(batcher), readers_(readers) {}
  /// From now on it says that it is not ready, and answers.
  void become_unready() { ready_ = false; }
  /// From now on it refuses inferences.
  void close() { closed_ = true; }

  Begun begin(const HttpRequest& request) override;
  HttpResponse error(unsigned status, const std::string& what) override;

 private:
  using Respond = HttpVisit::Respond;
  class Visit;
  /// An inference from its arrival to its answer.
  struct Passing;
  HttpResponse document(const Route& route);
  bool knows_token(const HttpRequest& request) const;
  void take(const std::shared_ptr<Passing>& passing, HttpRequest request);
  void read(const std::shared_ptr<Passing>& passing, HttpRequest request);
  void prepare(const std::shared_ptr<Passing>& passing);
  void queue(const std::shared_ptr<Passing>& passing, double began_s);
  void leave(const std::shared_ptr<Passing>& passing, RowsJob::End end);
  HttpResponse answer(const Passing& passing, RowsJob::End end);
  HttpResponse failed(const Passing& passing, HttpResponse response);
  HttpResponse failed_by(const Passing& passing, const std::exception& fault);

  const ServeSpec& spec_;
  Repository& repository_;
  Batcher& batcher_;
  Readers& readers_;
  std::atomic<bool> ready_{true}, closed_{false};
};

}  // namespace lockstep::serve
