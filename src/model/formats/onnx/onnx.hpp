#pragma once

#include <string>

#include "lockstep/model/formats/formats.hpp"

namespace lockstep::model {

/// A network with its weights as an ONNX file of operator set 13 and IR version 7, which also older
/// readers take (github.com/onnx/onnx, onnx.proto and docs/Operators.md). N, the number of images,
/// is free.
///
///   images         uint8 [N, height, width, channels]: the file normalises the pixels itself
///   logits         float [N, classes]
///   probabilities  float [N, classes], their softmax
///
/// Constants have the names of the tensors. The metadata are notes_of(). The same model and options
/// give the same bytes. Throws InputError naming the node that ONNX has no form for, and where
/// pixels cannot be normalised because mean and deviation are not known. Takes about five times the
/// weights' memory.
std::string onnx_bytes(const Model& model, const GraphOptions& options);
inline std::string onnx_bytes(const Model& model) { return onnx_bytes(model, {}); }

}  // namespace lockstep::model
