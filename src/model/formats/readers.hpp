#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/formats/formats.hpp"
#include "lockstep/nn/resnet.hpp"
#include "model/formats/stored_tensor.hpp"
#include "model/formats/torch/pickle.hpp"
#include "model/formats/zip.hpp"

namespace lockstep::model {

std::string safetensors_bytes(const Model& model);

/// Reads the whole header and checks that the tensors fill the rest, without gaps. Throws
/// InputError saying what is wrong with it.
TensorFile read_safetensors(std::shared_ptr<const std::string> content);

std::string npz_bytes(const Model& model);

/// True when the zip has an array of numpy's.
bool is_npz(const ZipReader& zip);

/// Reads the arrays' headers. Throws InputError saying what is wrong with one.
TensorFile read_npz(std::shared_ptr<const ZipReader> zip);

/// The notes as a zip's comment, without names of classes that do not fit; and back. A comment of
/// another form has no notes.
std::string notes_as_comment(std::map<std::string, std::string> notes);
std::map<std::string, std::string> notes_in_comment(std::string_view comment);

/// The tensors of a network, by torchvision's names.
using ByName = std::map<std::string, const StoredTensor*>;

/// True for num_batches_tracked, which no network needs.
bool counts_batches(const std::string& name);

/// Takes off what people's programs put before all names ("module.", "model.", "_orig_mod."), and
/// leaves out what counts batches. Throws InputError when there are no others, or a name comes
/// twice.
ByName by_name(const TensorFile& file);

/// The ResNet that has exactly these tensors, or with `may_lack_head` all but the last layer's,
/// with the usual input. Throws InputError naming the one that is most alike, and the first tensor
/// that differs.
nn::ResNetSpec deduce(const ByName& tensors, bool may_lack_head);

/// A network with its weights as an ONNX file of operator set 13 and IR version 7, which also older
/// readers take (github.com/onnx/onnx, onnx.proto and docs/Operators.md). N, the number of images,
/// is free.
///
///   images         [N, height, width, channels] of the network's element: the file normalises
///                  them itself, and makes 0 of no data
///   logits         float [N, outputs], as the network gives them
///   probabilities  float [N, outputs], their softmax, or of labels each one's sigmoid; or
///   values         float [N, outputs] in their units
///
/// Constants have the names of the tensors. The metadata are notes_of() and `steps`. The same model
/// and options give the same bytes. Throws InputError naming the node that ONNX has no form for,
/// and where images cannot be normalised because mean and deviation are not known. Takes about five
/// times the weights' memory.
std::string onnx_bytes(const Model& model, const GraphOptions& options);
inline std::string onnx_bytes(const Model& model) { return onnx_bytes(model, {}); }

/// True when a file begins as an ONNX file does whose producer is named. There is no magic number:
/// others are found by the ending of their name.
bool looks_like_onnx(std::string_view begin);

/// Finds the weights among the constants of the graph. Throws InputError saying what is wrong, also
/// where batch norms were made parts of the convolutions.
TensorFile read_onnx(std::shared_ptr<const std::string> content);

/// A state dict as torch.save() writes it.
std::string pth_bytes(const Model& model);

/// True when the zip is one of torch.save()'s.
bool is_pth(const ZipReader& zip);

/// Finds the state dict and its tensors, and checks that each lies in its storage. Throws
/// InputError saying what is wrong.
TensorFile read_pth(std::shared_ptr<const ZipReader> zip);

/// The same for the form before PyTorch 1.6, which is no zip.
bool looks_like_old_pth(std::string_view begin);
TensorFile read_old_pth(std::shared_ptr<const std::string> content);

/// The names that a pickle of tensors may have.
std::span<const std::string_view> torch_names();

/// A flat buffer that tensors lie in.
struct TorchStorage {
  std::string key;
  const NumberForm* type = nullptr;
  std::size_t count = 0;
};

/// The bytes of a storage, of exactly count * type->bytes. Throws InputError where there are none.
using FindStorage =
    std::function<std::function<std::string_view(std::string& buffer)>(const TorchStorage&)>;

/// The tensors of the state dict in a pickle: the dictionary that has some below `state_dict`,
/// `model` and the like, or else the outermost one. Throws InputError saying what is missing or
/// wrong.
std::vector<StoredTensor> tensors_in(const Pickle& pickle, const FindStorage& find);

/// The storages that the pickle refers to, each once.
std::vector<TorchStorage> storages_in(const Pickle& pickle);

}  // namespace lockstep::model
