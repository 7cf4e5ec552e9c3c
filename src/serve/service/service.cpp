#include "serve/service/service.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/log.hpp"
#include "serve/protocol/openapi.hpp"
#include "serve/protocol/request_error.hpp"
#include "serve/service/documents.hpp"
#include "serve/service/page.hpp"

namespace lockstep::serve {
namespace {

/// Takes the same time wherever they differ.
bool equal_secrets(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ (b.empty() ? '\1' : b[i % b.size()]));
  return difference == 0;
}

/// What a health check and a browser must get without a token; they tell nothing.
bool is_open(Resource resource) {
  return resource == Resource::page || resource == Resource::live || resource == Resource::ready;
}

HttpResponse json(std::string body, unsigned status = 200) {
  return {.status = status, .type = "application/json", .body = std::move(body)};
}

std::vector<DescribedModel> described_models(const Repository& repository) {
  std::vector<DescribedModel> models;
  for (const auto& version : repository.all()) {
    const data::DataSetInfo& input = version->input();
    models.push_back({version->name(), version->number(), input.height, input.width, input.channels,
                      version->classes()});
  }
  return models;
}

HttpResponse page() {
  return {.type = "text/html; charset=utf-8",
          .body = std::string(page_html()),
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'unsafe-inline'; style-src "
                       "'unsafe-inline'; img-src blob:; connect-src 'self'"},
                      {"X-Content-Type-Options", "nosniff"}}};
}

}  // namespace

struct Service::Passing {
  std::shared_ptr<const Version> version;
  std::shared_ptr<Statistics> statistics;
  std::shared_ptr<Passage> passage;
  Respond respond;
  double arrived_s = now_s();
  double input_s = 0;  ///< preparation of its rows
  Inferring inferring;
};

/// A request for what its path names.
class Service::Visit final : public HttpVisit {
 public:
  Visit(Service& service, Route route) : service_(service), route_(std::move(route)) {
    if (route_.resource != Resource::infer) return;
    version_ = service.repository_.find(route_.model, route_.version);
  }
  ~Visit() override {
    if (passage_) passage_->end();
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  void answer(HttpRequest request, Respond respond) override {
    try {
      if (!version_) return respond(service_.document(route_));
      passage_ = std::make_shared<Passage>(service_.batcher_, version_->lane);
      const auto passing = std::make_shared<Passing>();
      passing->version = std::move(version_);
      passing->statistics = service_.repository_.statistics(route_.model);
      passing->passage = passage_;
      passing->respond = std::move(respond);
      service_.take(passing, std::move(request));
    } catch (const RequestError& fault) {
      respond(service_.error(fault.status(), fault.what()));
    }
  }

 private:
  Service& service_;
  const Route route_;
  std::shared_ptr<const Version> version_;  ///< for an inference, which has not come completely
  std::shared_ptr<Passage> passage_;
};

HttpResponse Service::error(unsigned status, const std::string& what) {
  return json(error_document(what), status);
}

bool Service::knows_token(const HttpRequest& request) const {
  if (spec_.token.empty()) return true;
  const auto found = request.headers.find("authorization");
  return found != request.headers.end() && equal_secrets("Bearer " + spec_.token, found->second);
}

HttpService::Begun Service::begin(const HttpRequest& request) {
  std::string allowed;
  try {
    Route route = find_route(request.method, request.path, allowed);
    if (!is_open(route.resource) && !knows_token(request)) {
      HttpResponse refusal =
          error(401, "a token is needed: the header Authorization: Bearer TOKEN");
      refusal.headers["WWW-Authenticate"] = "Bearer";
      return refusal;
    }
    const bool infers = route.resource == Resource::infer;
    auto visit = std::make_unique<Visit>(*this, std::move(route));
    if (!infers || !closed_) return visit;
    HttpResponse refusal = error(503, "the server ends");
    refusal.headers = {{"Retry-After", "1"}, {"Connection", "close"}};
    return refusal;
  } catch (const RequestError& fault) {
    HttpResponse refusal = error(fault.status(), fault.what());
    if (fault.status() == 405) refusal.headers["Allow"] = allowed;
    return refusal;
  }
}

/// To wake another thread for what takes as long as that would cost more than it saves.
void Service::take(const std::shared_ptr<Passing>& passing, HttpRequest request) {
  if (is_soon_read(request)) return read(passing, std::move(request));
  readers_.post(
      [this, passing, whole = std::move(request)]() mutable { read(passing, std::move(whole)); });
}

HttpResponse Service::document(const Route& route) {
  const auto version = [&] { return repository_.find(route.model, route.version); };
  const bool ready = ready_;
  switch (route.resource) {
    case Resource::page:
      return page();
    case Resource::metrics:
      return {.type = "text/plain; version=0.0.4; charset=utf-8",
              .body = metrics_text(repository_, batcher_, ready)};
    case Resource::live:
      return json(live_document(ready));
    case Resource::ready:
      return json(live_document(ready), ready ? 200 : 503);
    case Resource::server:
      return json(server_document());
    case Resource::description:
      return json(openapi_document(described_models(repository_), !spec_.token.empty()));
    case Resource::index:
      return json(index_document(repository_));
    case Resource::model:
      return json(model_document(*version()));
    case Resource::model_ready:
      return json(model_ready_document(*version(), ready), ready ? 200 : 503);
    case Resource::model_config:
      return json(config_document(*version(), batcher_));
    case Resource::statistics:
      return json(statistics_document(
          route.model.empty() ? repository_.all() : std::vector{version()}, repository_));
    case Resource::infer:
      break;
  }
  throw Error("an inference is no document");
}

void Service::read(const std::shared_ptr<Passing>& passing, HttpRequest request) {
  const double began_s = now_s();
  Inferring& inferring = passing->inferring;
  try {
    read_infer(std::move(request), *passing->version, spec_, inferring);
    if (inferring.files.empty()) return queue(passing, began_s);
    readers_.post([this, passing] { prepare(passing); });
  } catch (const std::exception& fault) {
    passing->respond(failed_by(*passing, fault));
  }
}

void Service::prepare(const std::shared_ptr<Passing>& passing) {
  const double began_s = now_s();
  try {
    prepare_files(passing->inferring, *passing->version);
    queue(passing, began_s);
  } catch (const std::exception& fault) {
    passing->respond(failed_by(*passing, fault));
  }
}

void Service::queue(const std::shared_ptr<Passing>& passing, double began_s) {
  const Inferring& inferring = passing->inferring;
  const auto& job = inferring.job;
  const double limit_s = std::min(inferring.timeout_s.value_or(spec_.deadline_s), spec_.deadline_s);
  job->arrived_s = now_s();
  job->deadline_s = passing->arrived_s + limit_s;
  job->passage = passing->passage;
  passing->input_s = job->arrived_s - began_s;
  job->ended = [this, passing](RowsJob::End end) { leave(passing, end); };
  if (batcher_.put(passing->version->lane, job)) return;
  job->ended = nullptr;  // it holds the job itself
  passing->statistics->change([](ModelFigures& figures) { ++figures.refused; });
  HttpResponse full = error(503, fmt::format("more than {} images wait for the model '{}'",
                                             spec_.waiting_rows, passing->version->name()));
  full.headers["Retry-After"] = "1";
  passing->respond(failed(*passing, std::move(full)));
}

void Service::leave(const std::shared_ptr<Passing>& passing, RowsJob::End end) {
  if (is_soon_written(passing->inferring, *passing->version))
    return passing->respond(answer(*passing, end));
  readers_.post([this, passing, end] { passing->respond(answer(*passing, end)); });
}

/// What is no fault of the request is logged, and not told.
HttpResponse Service::failed_by(const Passing& passing, const std::exception& fault) {
  if (const auto* told = dynamic_cast<const RequestError*>(&fault))
    return failed(passing, error(told->status(), told->what()));
  log::warn(fmt::format("an inference of the model '{}' failed: {}", passing.version->name(),
                        fault.what()));
  return failed(passing, error(500, "it failed"));
}

HttpResponse Service::failed(const Passing& passing, HttpResponse response) {
  passing.statistics->change(
      [&](ModelFigures& figures) { figures.fail.add(now_s() - passing.arrived_s); });
  return response;
}

HttpResponse Service::answer(const Passing& passing, RowsJob::End end) {
  if (end == RowsJob::End::late)
    return failed(passing,
                  error(504, fmt::format("it was not computed within {} s",
                                         passing.inferring.job->deadline_s - passing.arrived_s)));
  if (end == RowsJob::End::failed) return failed(passing, error(500, "it failed"));
  const double began_s = now_s();
  try {
    HttpResponse response = infer_response(passing.inferring, *passing.version);
    const double ended_s = now_s();
    passing.statistics->change([&](ModelFigures& figures) {
      figures.queue.add(passing.inferring.job->waited_s);
      figures.input.add(passing.input_s);
      figures.infer.add(passing.inferring.job->computed_s);
      figures.output.add(ended_s - began_s);
      figures.add_success(ended_s - passing.arrived_s);
    });
    return response;
  } catch (const std::exception& fault) {
    return failed_by(passing, fault);
  }
}

}  // namespace lockstep::serve
