#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lockstep/model/formats/formats.hpp"
#include "model/formats/stored_tensor.hpp"

namespace lockstep::model {

/// A network with its weights as an ONNX file of operator set 13 and IR version 7, which also older
/// readers take (github.com/onnx/onnx, onnx.proto and docs/Operators.md). N, the number of images,
/// is free.
///
///   images         uint8 [N, height, width, channels]: the file normalises the pixels itself
///   logits         float [N, classes]
///   probabilities  float [N, classes], their softmax
///
/// Constants have the names of the tensors. The metadata are notes_of() and `steps`. The same model
/// and options give the same bytes. Throws InputError naming the node that ONNX has no form for,
/// and where pixels cannot be normalised because mean and deviation are not known. Takes about five
/// times the weights' memory.
std::string onnx_bytes(const Model& model, const GraphOptions& options);
inline std::string onnx_bytes(const Model& model) { return onnx_bytes(model, {}); }

/// True when a file begins as an ONNX file does whose producer is named. There is no magic number:
/// others are found by the ending of their name.
bool looks_like_onnx(std::string_view begin);

/// Finds the weights among the constants of the graph. Throws InputError saying what is wrong, also
/// where batch norms were made parts of the convolutions.
TensorFile read_onnx(std::shared_ptr<const std::string> content);

}  // namespace lockstep::model
