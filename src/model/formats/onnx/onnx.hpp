#pragma once

#include <string>

#include "lockstep/model/model.hpp"

namespace lockstep::model {

struct OnnxOptions {
  /// The input is float [N, channels, height, width], already normalised, instead of the pixels.
  bool float_input = false;
  /// Batch norms become part of the convolutions before them, computed in double precision.
  bool fold = false;
};

/// A trained network as an ONNX file of operator set 13 and IR version 7, which also older readers
/// take (github.com/onnx/onnx, onnx.proto and docs/Operators.md). N, the number of images, is free.
///
///   images         uint8 [N, height, width, channels], as decoded and cut to the input's size
///   logits         float [N, classes]
///   probabilities  float [N, classes], their softmax
///
/// The file normalises the pixels itself. Initialisers have the names of the tensors. Its metadata
/// are `model`, `classes` (a JSON list of names, empty where they are not known), `mean` and
/// `stddev` (JSON lists, of value / 255), `fit` and `short_side` (the preparation of images, as in
/// a checkpoint), and `weights_crc32c`: of all tensors' values in the network's order. The same
/// model and options give the same bytes. Throws InputError naming the node that ONNX has no form
/// for.
std::string onnx_bytes(const Model& model, const OnnxOptions& options = {});

}  // namespace lockstep::model
