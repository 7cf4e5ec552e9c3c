#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/http.hpp"
#include "serve/protocol/infer_request.hpp"
#include "serve/service/version.hpp"

// From a request's body to rows, and from their logits to the response's body.
namespace lockstep::serve {

/// The inputs and outputs that every model has.
constexpr const char *pixels_input = "images", *files_input = "image_bytes",
                     *logits_output = "logits", *probabilities_output = "probabilities";

/// An inference that has been read.
struct Inferring {
  std::string id;
  std::vector<WantedOutput> outputs;  ///< at least one; each says whether it is binary
  std::optional<double> timeout_s;
  std::shared_ptr<RowsJob> job;
};

/// Reads a request's body, which it decodes, and prepares its rows. Throws RequestError.
Inferring read_infer(HttpRequest request, const Version& version, const ServeSpec& spec);

/// The response to it, once its rows are computed.
HttpResponse infer_response(const Inferring& inferring, const Version& version);

}  // namespace lockstep::serve
