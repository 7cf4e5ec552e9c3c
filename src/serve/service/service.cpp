#include "serve/service/service.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/log.hpp"
#include "serve/protocol/route.hpp"
#include "serve/service/documents.hpp"

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
    models.push_back({.name = version->name(),
                      .version = version->number(),
                      .height = input.height,
                      .width = input.width,
                      .channels = input.channels,
                      .classes = version->classes(),
                      .element = input.element,
                      .task = input.task,
                      .files = version->takes_files()});
  }
  return models;
}

HttpResponse page() {
  return {.type = "text/html; charset=utf-8",
          .body = std::string(page_html()),
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'unsafe-inline'; style-src "
                       "'unsafe-inline'; img-src blob:; connect-src 'self'; frame-ancestors "
                       "'none'"},
                      {"X-Content-Type-Options", "nosniff"}}};
}

}  // namespace

/// A request for what its path names.
class Service::Visit final : public HttpVisit {
 public:
  Visit(Service& service, Route route) : service_(service), route_(std::move(route)) {
    if (route_.resource != Resource::infer) return;
    version_ = service.repository_.find(route_.model, route_.version);
  }
  ~Visit() override {
    if (passage_) passage_->end();
    if (const One passing = passing_.lock()) service_.forget(passing);
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  void answer(HttpRequest request, Respond respond) override {
    try {
      if (!version_) return respond(service_.document(route_));
      passage_ = std::make_shared<Passage>(service_.batcher_, version_->lane);
      const auto passing = std::make_shared<Passing>(service_.spec_.http.budget);
      passing_ = passing;
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
  std::weak_ptr<Passing> passing_;  ///< it holds much
};

HttpResponse Service::error(unsigned status, const std::string& what) {
  HttpResponse response = json(error_document(what), status);
  if (status == 503) response.headers["Retry-After"] = "1";
  return response;
}

bool Service::knows_token(const HttpRequest& request) const {
  if (spec_.token.empty()) return true;
  constexpr std::string_view scheme = "bearer ";  // in any case
  const auto found = request.headers.find("authorization");
  if (found == request.headers.end() || found->second.size() < scheme.size()) return false;
  const std::string_view given = found->second;
  const bool bears = std::ranges::equal(given.substr(0, scheme.size()), scheme, {}, [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return bears && equal_secrets(spec_.token, given.substr(scheme.size()));
}

/// On an address of this machine alone, without a token, a page of the web must not ask: its name
/// may lead here. An address in numbers is no name.
bool Service::knows_host(const HttpRequest& request) const {
  const bool local = spec_.http.host.starts_with("127.") || spec_.http.host == "::1";
  const auto found = request.headers.find("host");
  if (!local || !spec_.token.empty() || !spec_.http.socket.empty() ||
      found == request.headers.end())
    return true;
  const std::string_view host = found->second;
  const std::string_view name = host.substr(0, host.find(':'));
  return host.starts_with('[') || name == "localhost" || name.ends_with(".localhost") ||
         name.find_first_not_of("0123456789.") == name.npos;
}

HttpService::Begun Service::begin(const HttpRequest& request) {
  std::string allowed;
  try {
    if (!knows_host(request))
      return error(421,
                   "this server answers to its address and to 'localhost', and not to other "
                   "names, unless it has a token (--token-file)");
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
    refusal.headers["Connection"] = "close";
    return refusal;
  } catch (const RequestError& fault) {
    HttpResponse refusal = error(fault.status(), fault.what());
    if (fault.status() == 405) refusal.headers["Allow"] = allowed;
    return refusal;
  }
}

/// To wake another thread for what takes as long as that would cost more than it saves.
void Service::take(const One& passing, HttpRequest request) {
  passing->deadline_s = passing->arrived_s + spec_.deadline_s;
  underway_.add(passing);
  if (is_soon_read(request)) return read(passing, std::move(request));
  const double cost_s = reading_cost_s(request, spec_);
  // The function must be one that can be copied.
  readers_.post(passing->flow, cost_s,
                [this, passing, whole = std::make_shared<HttpRequest>(std::move(request))] {
                  read(passing, std::move(*whole));
                });
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

void Service::read(const One& passing, HttpRequest request) {
  const double began_s = now_s();
  Inferring& inferring = passing->inferring;
  try {
    read_infer(std::move(request), *passing->version, spec_, inferring);
    const double limit_s =
        std::min(inferring.timeout_s.value_or(spec_.deadline_s), spec_.deadline_s);
    passing->deadline_s = passing->arrived_s + limit_s;
    passing->input_s = now_s() - began_s;
    if (inferring.files.empty()) return queue(passing);
    readers_.post(passing->flow, next_cost_s(inferring), [this, passing] { prepare(passing); });
  } catch (const std::exception& fault) {
    fail(passing, fault);
  }
}

/// One step: as many images as fit in a short time. Then it is the turn of others.
void Service::prepare(const One& passing) {
  constexpr double step_s = 0.005;
  const double began_s = now_s();
  Inferring& inferring = passing->inferring;
  try {
    if (inferring.prepared == 0) make_room(inferring, *passing->version);
    for (bool more = true; more;) {
      if (passing->over) return;
      if (now_s() >= passing->deadline_s) return finish(passing, late(*passing));
      more = prepare_next(inferring, *passing->version);
      const double took_s = now_s() - began_s, cost_s = more ? next_cost_s(inferring) : 0;
      if (more && took_s + cost_s < step_s) continue;
      passing->input_s += took_s;
      if (!more) return queue(passing);
      return readers_.post(passing->flow, cost_s, [this, passing] { prepare(passing); });
    }
  } catch (const std::exception& fault) {
    fail(passing, fault);
  }
}

void Service::queue(const One& passing) {
  const auto& job = passing->inferring.job;
  job->arrived_s = now_s();
  job->deadline_s = passing->deadline_s;
  job->passage = passing->passage;
  job->ended = [this, passing](RowsJob::End end) { leave(passing, end); };
  passing->queued = true;
  const bool has_room = batcher_.put(passing->version->lane, job);
  if (has_room && !passing->over) return;
  if (has_room) return batcher_.forget(*passing->version->lane, job);
  job->ended = nullptr;  // it holds the job itself
  passing->statistics->change([](ModelFigures& figures) { ++figures.refused; });
  finish(passing, error(503, fmt::format("more than {} images wait for the model '{}'",
                                         spec_.waiting_rows, passing->version->name())));
}

void Service::leave(const One& passing, RowsJob::End end) {
  if (is_soon_written(passing->inferring, *passing->version)) return answer(passing, end);
  passing->queued = false;
  readers_.post(passing->flow, writing_cost_s(passing->inferring, *passing->version),
                [this, passing, end] { answer(passing, end); });
}

/// Its connection has ended.
void Service::forget(const One& passing) {
  if (!underway_.end(passing)) return;
  readers_.forget(passing->flow);
  if (passing->queued) batcher_.forget(*passing->version->lane, passing->inferring.job);
}

void Service::end_late(double now_s) {
  for (const One& passing : underway_.late(now_s)) {
    readers_.forget(passing->flow);
    finish(passing, late(*passing));
  }
}

std::size_t Service::give_up() {
  const std::vector<One> left = underway_.all();
  for (const One& passing : left) {
    readers_.forget(passing->flow);
    finish(passing, error(503, "the server ends"));
    if (passing->queued) batcher_.forget(*passing->version->lane, passing->inferring.job);
  }
  return left.size();
}

HttpResponse Service::late(const Passing& passing) {
  return error(504, fmt::format("it was not computed within {:.6g} s",
                                passing.deadline_s - passing.arrived_s));
}

/// What is no fault of the request is logged, and not told.
void Service::fail(const One& passing, const std::exception& fault) {
  if (const auto* told = dynamic_cast<const RequestError*>(&fault))
    return finish(passing, error(told->status(), told->what()));
  log::warn(fmt::format("an inference of the model '{}' failed: {}", passing->version->name(),
                        fault.what()));
  finish(passing, error(500, "it failed"));
}

/// An error; what is computed has answer().
void Service::finish(const One& passing, HttpResponse response) {
  if (!underway_.end(passing)) return;
  passing->statistics->change(
      [&](ModelFigures& figures) { figures.fail.add(now_s() - passing->arrived_s); });
  passing->respond(std::move(response));
}

void Service::answer(const One& passing, RowsJob::End end) {
  if (passing->over) return;
  if (end == RowsJob::End::late) return finish(passing, late(*passing));
  if (end == RowsJob::End::failed) return finish(passing, error(500, "it failed"));
  const double began_s = now_s();
  try {
    HttpResponse response = infer_response(passing->inferring, *passing->version);
    const double ended_s = now_s();
    if (!underway_.end(passing)) return;
    const RowsJob& job = *passing->inferring.job;
    passing->statistics->change([&](ModelFigures& figures) {
      figures.queue.add(job.waited_s);
      figures.input.add(passing->input_s);
      figures.infer.add(job.computed_s);
      figures.output.add(ended_s - began_s);
      figures.add_success(ended_s - passing->arrived_s);
    });
    passing->respond(std::move(response));
  } catch (const std::exception& fault) {
    fail(passing, fault);
  }
}

}  // namespace lockstep::serve
