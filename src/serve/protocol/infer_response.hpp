#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::serve {

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
