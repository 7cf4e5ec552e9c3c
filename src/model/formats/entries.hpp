#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/model.hpp"
#include "model/formats/stored_tensor.hpp"

// What the writers of other programs' files have in common.
namespace lockstep::model {

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
