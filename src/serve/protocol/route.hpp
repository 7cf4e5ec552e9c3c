#pragma once

#include <string>
#include <string_view>

namespace lockstep::serve {

/// What a path asks for.
enum class Resource {
  page,
  metrics,
  live,
  ready,
  server,
  index,
  description,
  model,
  model_ready,
  model_config,
  statistics,
  infer
};

struct Route {
  Resource resource = Resource::page;
  std::string model = {}, version = {};  ///< where the path names them
};

/// Reads a path. Throws RequestError: 404 for one that nothing is at, 405 for a method that it does
/// not have (`allowed` then names those it has).
Route find_route(std::string_view method, std::string_view path, std::string& allowed);

}  // namespace lockstep::serve
