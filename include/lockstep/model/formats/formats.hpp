#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/data_set_info.hpp"
#include "lockstep/model/model.hpp"

// Models in other programs' files. A tensor there has torchvision's name and shape, as Weight has:
// [out, in, kernel, kernel], [out, in] or [channels], row by row. data/CHECKPOINT.md says what each
// format holds in addition.
namespace lockstep::model {

/// What a format leaves open that holds the network, and not only its weights.
struct GraphOptions {
  /// The input is float [N, channels, height, width], already normalised, and not pixels.
  bool float_input = false;
  /// Batch norms become part of the convolutions before them, computed in double precision.
  bool fold = false;
};

/// A format in which a model can be written. To add one, write a function `bytes` and put a line
/// into the table in formats.cpp.
struct Format {
  std::string_view ending;  ///< of the file's name: ".safetensors"
  std::string_view what;    ///< for people: "safetensors"
  /// The whole file. The same model gives the same bytes. Throws InputError where the format cannot
  /// hold it.
  std::string (*bytes)(const Model& model);
  /// The same with options; null in a format without the network.
  std::string (*bytes_of_graph)(const Model& model, const GraphOptions& options) = nullptr;
};

std::span<const Format> formats();
std::string format_endings();  ///< ".safetensors, .pth, ..."

/// The format by the ending of the file's name. Throws InputError, listing the endings, when none
/// has it.
const Format& format_of(const std::filesystem::path& path);

/// The weights in the order in which the forward pass uses them, which is that of torchvision's
/// state_dict().
std::vector<const Weight*> in_forward_order(const Model& model);

/// True for what read_weights() is meant for, by how the file begins or by its ending; never for a
/// checkpoint. Does not verify the rest.
bool is_weights_file(const std::filesystem::path& path);

/// A model, and the format that it was read from: "safetensors", "PyTorch", "numpy", "ONNX".
struct ModelOfFile {
  Model model;
  std::string format;
};

/// Reads safetensors, PyTorch's .pth (of either form), numpy's .npz and ONNX, which may come from
/// anyone. Names may have the usual prefixes (`module.`), a .pth may keep the tensors under
/// `state_dict` or `model`; of an ONNX file, the constants of layers are read. Halves and doubles
/// become floats. The network is the ResNet that has these tensors. What the file does not say
/// about its input is that of `rows`, or else what is usual for the network, with neither class
/// names nor mean and deviation. With `may_lack_head` it may be without its last layer: then the
/// model has no weights of one. No allocation is larger than twice the file, but for some
/// megabytes. Throws InputError naming the file and the tensor when it is damaged, holds another
/// network, or a value is not finite.
ModelOfFile read_weights(const std::filesystem::path& path, const data::DataSetInfo* rows = nullptr,
                         bool may_lack_head = false);

/// load() of a checkpoint, or read_weights(). InputError for Part::average of another file.
Model load_any(const std::filesystem::path& path, const DescribeOld& describe_old = nullptr,
               backend::Part part = backend::Part::weights, const data::DataSetInfo* rows = nullptr,
               bool may_lack_head = false);

}  // namespace lockstep::model
