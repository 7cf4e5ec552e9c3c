#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/http.hpp"
#include "lockstep/data/data_set_info.hpp"

// The body of an inference request: the Open Inference Protocol's JSON, with Triton's extensions
// for binary tensors and classifications. It may come from anyone.
namespace lockstep::serve {

/// What the protocol calls numbers of an element.
const char* datatype_of(data::Element element);

/// What a request's tensors may hold.
struct TakenInput {
  data::Element element = data::Element::u8;
  bool files = true;  ///< also JPEG and PNG files, as BYTES
};

/// A tensor of a request. It can be moved, but not copied, because it sees into itself.
struct InputTensor {
  std::string name;
  bool pixels = false;  ///< numbers of the element; else BYTES
  std::vector<std::size_t> shape;
  std::span<const std::uint8_t> values;   ///< bytes of numbers: as many as the shape says
  std::vector<std::string_view> strings;  ///< BYTES: as many as the shape says
  std::vector<std::uint8_t> own_values;   ///< what came as JSON, and not in the body
  std::vector<std::string> own_strings;

  InputTensor() = default;
  InputTensor(InputTensor&&) = default;
  InputTensor& operator=(InputTensor&&) = default;
  InputTensor(const InputTensor&) = delete;
  InputTensor& operator=(const InputTensor&) = delete;
};

/// An output that the client names.
struct WantedOutput {
  std::string name;
  std::optional<bool> binary;      ///< as it asks; else as InferRequest::binary
  std::size_t classification = 0;  ///< the likeliest classes in place of the values; 0: the values
};

struct InferRequest {
  std::string id;  ///< may be empty
  /// Seconds in which the client wants its answer; the parameter `timeout` 0 means none, too.
  std::optional<double> timeout_s;
  bool binary = false;  ///< outputs are binary unless they say otherwise
  std::vector<InputTensor> inputs;
  std::vector<WantedOutput> outputs;  ///< none: all
};

/// Reads a body. `json_length`: the header Inference-Header-Content-Length, how many of its bytes
/// are JSON; without it all are. The views are into `body`. Throws RequestError 400 naming the
/// field: not JSON, nested too deep, a wrong type, a shape that does not fit the data, lengths that
/// do not add up, a datatype that is not taken. `share` has what reading takes while it lasts: 503
/// when that is not there.
InferRequest parse_infer_request(std::string_view body,
                                 const std::optional<std::string>& json_length,
                                 const TakenInput& taken, ByteBudget::Share& share);

/// True where the header says that the body is no JSON but the bytes of the only input.
bool is_raw(const std::optional<std::string>& json_length);

/// A tensor of a response: FP32 or, where it has strings, BYTES.
struct OutputTensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::vector<float> values;
  std::vector<std::string> strings;
  bool binary = false;
};

struct InferResponse {
  std::string model, version, id;
  std::vector<OutputTensor> outputs;
};

/// The body: JSON and then the binary tensors, in order. `json_length`: how many bytes are JSON.
/// A value that is not a number is null in JSON.
std::string infer_response_body(const InferResponse& response, std::size_t& json_length);

}  // namespace lockstep::serve
