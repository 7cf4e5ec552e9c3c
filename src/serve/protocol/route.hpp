#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

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

/// What the description says of a model that is served.
struct DescribedModel {
  std::string name, version;  ///< as they are in paths; no character needs quoting in JSON
  std::size_t height = 0, width = 0, channels = 0, classes = 0;
};

/// The service's OpenAPI description, version 3.1: each path of each model, what it takes and
/// answers. What it calls valid is answered by 200, unless a deadline or the queue forbids it. It
/// describes requests of one image as JSON; binary tensors, which no schema can say, by words.
/// `token`: requests need one.
std::string openapi_document(const std::vector<DescribedModel>& models, bool token);

}  // namespace lockstep::serve
