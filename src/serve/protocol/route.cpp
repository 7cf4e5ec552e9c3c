#include "serve/protocol/route.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "serve/protocol/request_error.hpp"

namespace lockstep::serve {
namespace {

std::vector<std::string> words_of(std::string_view path) {
  std::vector<std::string> words;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/', 1), path.size());
    words.emplace_back(path.substr(1, end - 1));
    path.remove_prefix(end);
  }
  return words;
}

/// models/NAME[/versions/VERSION][/WHAT]
std::optional<Route> model_route(const std::vector<std::string>& words) {
  static const std::map<std::string, Resource> of_model = {{"", Resource::model},
                                                           {"ready", Resource::model_ready},
                                                           {"config", Resource::model_config},
                                                           {"stats", Resource::statistics},
                                                           {"infer", Resource::infer}};
  if (words.size() < 3 || words[1] != "models" || words[2].empty()) return std::nullopt;
  Route route{.model = words[2]};
  std::size_t at = 3;
  if (words.size() > 4 && words[3] == "versions") {
    route.version = words[4];
    at = 5;
  }
  const std::string what = at < words.size() ? words[at] : "";
  const auto found = of_model.find(what);
  if (words.size() > at + 1 || (at < words.size() && what.empty()) || found == of_model.end())
    return std::nullopt;
  route.resource = found->second;
  return route;
}

std::optional<Route> route_of(std::string_view path) {
  static const std::map<std::string, Resource, std::less<>> fixed = {
      {"/", Resource::page},
      {"/metrics", Resource::metrics},
      {"/openapi.json", Resource::description},
      {"/v2", Resource::server},
      {"/v2/", Resource::server},
      {"/v2/health/live", Resource::live},
      {"/v2/health/ready", Resource::ready},
      {"/v2/models/stats", Resource::statistics},
      {"/v2/repository/index", Resource::index}};
  if (const auto found = fixed.find(path); found != fixed.end()) return Route{found->second};
  if (!path.starts_with("/v2/")) return std::nullopt;
  return model_route(words_of(path));
}

}  // namespace

Route find_route(std::string_view method, std::string_view path, std::string& allowed) {
  const auto route = route_of(path);
  if (!route)
    throw RequestError(404, "nothing is at this path; a model answers at /v2/models/NAME/infer");
  const bool takes_a_body =
      route->resource == Resource::infer || route->resource == Resource::index;
  allowed = takes_a_body ? "POST" : "GET, HEAD";
  const bool fits = takes_a_body ? method == "POST" : method == "GET" || method == "HEAD";
  if (!fits) throw RequestError(405, fmt::format("this path takes {}", allowed));
  return *route;
}

}  // namespace lockstep::serve
