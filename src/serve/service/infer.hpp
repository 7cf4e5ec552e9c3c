#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/http.hpp"
#include "serve/protocol/infer_request.hpp"
#include "serve/service/repository.hpp"

// From a request's body to rows, and from their logits to the response's body.
namespace lockstep::serve {

/// The inputs and outputs of models. The second input is of those that take image files; another
/// output is backend::name_of_answers().
constexpr const char *pixels_input = "images", *files_input = "image_bytes",
                     *logits_output = "logits";

/// An inference that has been read. It stays where it is, because it sees into itself.
struct Inferring {
  std::string id;
  std::vector<WantedOutput> outputs;  ///< at least one; each says whether it is binary
  std::optional<double> timeout_s;
  bool for_people = false;  ///< one image: its likeliest classes as text
  std::shared_ptr<RowsJob> job;
  std::vector<std::string_view> files;  ///< images, of which `prepared` are in the job
  std::size_t prepared = 0;
  std::string body;  ///< of the request, decoded
  InputTensor input;
  ByteBudget::Share share;  ///< what it has of the budget, next to its body as it came

  explicit Inferring(const std::shared_ptr<ByteBudget>& budget) : share(budget) {}
  Inferring(const Inferring&) = delete;
  Inferring& operator=(const Inferring&) = delete;
};

/// Whether read_infer() takes much less time than a batch, by the request's lengths.
bool is_soon_read(const HttpRequest& request);

/// Reads a request's body, which it decodes, and takes its pixels or finds its files. Throws
/// RequestError.
void read_infer(HttpRequest request, const Version& version, const ServeSpec& spec,
                Inferring& inferring);

/// Makes room for the rows of the images that came as files. Throws RequestError 503.
void make_room(Inferring& inferring, const Version& version);

/// Prepares the row of the next image that came as a file; false when that was the last. Throws
/// RequestError.
bool prepare_next(Inferring& inferring, const Version& version);

// About how long these will take, in seconds.
double reading_cost_s(const HttpRequest& request, const ServeSpec& spec);
double next_cost_s(const Inferring& inferring);  ///< prepare_next()
double writing_cost_s(const Inferring& inferring, const Version& version);

/// Whether infer_response() takes much less time than a batch.
bool is_soon_written(const Inferring& inferring, const Version& version);

/// The response to it, once its rows are computed.
HttpResponse infer_response(const Inferring& inferring, const Version& version);

}  // namespace lockstep::serve
