#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/model.hpp"

// What the readers of other programs' files have in common. They know nothing of paths: their
// InputErrors say what is wrong with "it", and open_tensor_file() names the file.
namespace lockstep::model {

/// How a file holds a number: little-endian, under each format's name.
struct NumberForm {
  const char* name;     ///< safetensors' name, which messages use
  const char* numpy;    ///< "" where it has no name
  const char* storage;  ///< PyTorch's class, ""
  std::size_t bytes;
  float (*real)(const char* bytes);  ///< null where it is no real number
};

/// The type with this name in the format that the member tells. Null: none has it.
const NumberForm* find_type(const char* NumberForm::*format, std::string_view name);
const NumberForm& f32();
const NumberForm& i64();

/// A tensor of a file. Sizes and names are what the file claims.
struct StoredTensor {
  std::string name;
  const NumberForm* type = nullptr;
  std::vector<std::size_t> shape;
  std::size_t first = 0;             ///< element of its bytes at which it begins
  std::vector<std::size_t> strides;  ///< in elements, one for each extent
  /// All bytes that it lies in. They are in the file, or in `buffer`.
  std::function<std::string_view(std::string& buffer)> bytes;
};

/// A file that is open. Its tensors point into `content`.
struct TensorFile {
  std::string format;
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> notes;  ///< texts next to them, by name
  std::shared_ptr<const std::string> content;
};

/// A tensor may not have more dimensions than this.
inline constexpr std::size_t most_dimensions = 8;

/// How much memory the values of a file's tensors may take, or one unpacked member of it.
std::size_t memory_for(std::size_t file_bytes);

/// Numbers in a tensor. Throws InputError where they are too many to count.
std::size_t count_of(const std::vector<std::size_t>& shape);

/// Strides in which the last index is the fastest.
std::vector<std::size_t> row_major(const std::vector<std::size_t>& shape);

/// Its values, row by row. Throws InputError naming the tensor when it reaches beyond its bytes, or
/// holds no real numbers.
std::vector<float> values_of(const StoredTensor& tensor);

/// Its only number, a count; 0 where it is no i64, or has more of them.
std::int64_t count_in(const StoredTensor& tensor);

/// A name from a file, for a message: short, and without control characters.
std::string printable(std::string_view name);

/// Reads the file and finds out its format. Throws InputError naming the path.
TensorFile open_tensor_file(const std::string& path);

// What the writers of other programs' files have in common.

/// How lockstep's notes name their producer.
inline constexpr const char* this_producer = "lockstep";

/// One tensor to write, row by row.
struct Entry {
  std::string name;
  const NumberForm* type;
  std::vector<std::size_t> shape;
  std::string_view bytes;  ///< in the model
};

/// The model as torchvision's state_dict() has it, in that order: after each running variance comes
/// num_batches_tracked, the steps of the training.
std::vector<Entry> entries_of(const Model& model);

/// What explains the model, by name, as texts: data/CHECKPOINT.md lists them. A format without
/// num_batches_tracked adds `steps`.
std::map<std::string, std::string> notes_of(const Model& model);

/// CRC-32C of all values in the order of the forward pass.
std::string checksum_of(const Model& model);

/// Puts what notes_of() wrote into a model whose input has its usual size. What they do not say
/// stays as it is. Other programs' notes are ignored. Throws InputError naming a
/// note that cannot be right.
void apply_notes(const std::map<std::string, std::string>& notes, Model& model);

/// Throws InputError when the notes have a checksum that the weights do not have.
void check_notes(const std::map<std::string, std::string>& notes, const Model& model);

}  // namespace lockstep::model
