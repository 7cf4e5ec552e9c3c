#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/http.hpp"
#include "lockstep/data/data_set_info.hpp"

namespace lockstep::serve {

/// Throws RequestError 400 when `condition` does not hold. The sentence is only made then.
template <class... Values>
void expect(bool condition, fmt::format_string<Values...> sentence, Values&&... values) {
  if (!condition) throw RequestError(400, fmt::format(sentence, std::forward<Values>(values)...));
}

/// A body without the encoding that the header Content-Encoding names: gzip, deflate or none.
/// Throws RequestError: 415 for another encoding, 400 when the bytes are damaged or cut off, 413
/// when they become more than `most_bytes`, 503 when `share` cannot have the bytes that it makes.
std::string decode_content(std::string body, const std::string& encoding, std::size_t most_bytes,
                           ByteBudget::Share& share);

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
  std::size_t height = 0, width = 0, channels = 0;
  std::size_t classes = 0;  ///< or labels, or values
  data::Element element = data::Element::u8;
  data::Task task = data::Task::classes;
  bool files = true;  ///< it takes JPEG and PNG files
};

/// The service's OpenAPI description, version 3.1: each path of each model, what it takes and
/// answers. What it calls valid is answered by 200, unless a deadline or the queue forbids it. It
/// describes requests of one image as JSON; binary tensors, which no schema can say, by words; but
/// FP16, which has no form in JSON, as a body of one image.
/// `token`: requests need one.
std::string openapi_document(const std::vector<DescribedModel>& models, bool token);

}  // namespace lockstep::serve
