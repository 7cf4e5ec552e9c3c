#pragma once

#include "model/formats/deduce.hpp"
#include "model/formats/stored_tensor.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {

/// Reads all tensors of a file. The memory of one is bounded before it is taken.
inline void read_all(const model::TensorFile& file, std::size_t file_bytes) {
  for (const model::StoredTensor& tensor : file.tensors) {
    require_law(tensor.strides.size() == tensor.shape.size(), "an extent has its stride");
    require_law(tensor.shape.size() <= model::most_dimensions, "there are few dimensions");
    if (model::count_of(tensor.shape) * sizeof(float) > model::memory_for(file_bytes)) continue;
    try {
      require_law(model::values_of(tensor).size() == model::count_of(tensor.shape),
                  "a tensor has all its values");
    } catch (const InputError&) {
    }
    model::count_in(tensor);
  }
  model::deduce(model::by_name(file));
}

}  // namespace lockstep::fuzz
