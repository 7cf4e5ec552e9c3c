#pragma once

#include "model/formats/readers.hpp"
#include "model/formats/stored_tensor.hpp"
#include "tests/fuzz/target.hpp"

// The address sanitizer's, of clang's sanitizer/allocator_interface.h, which g++ 12 lacks: `begin`
// is called with each allocation.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*begin)(const volatile void* place,
                                                                       std::size_t bytes),
                                                         void (*end)(const volatile void* place));

namespace lockstep::fuzz {

/// While it lives: no single allocation is larger than the values of a file may be. `more`: what
/// else the format's reader may take, however small the file is.
class AllocationLaw {
 public:
  explicit AllocationLaw(std::size_t file_bytes, std::size_t more = 0)
      : most_(model::memory_for(file_bytes) + slack + more) {
    [[maybe_unused]] static const int installed =
        __sanitizer_install_malloc_and_free_hooks(note, nullptr);
    largest_ = 0;
  }
  ~AllocationLaw() { require_law(largest_ <= most_, "no allocation is beyond twice the file"); }
  AllocationLaw(const AllocationLaw&) = delete;
  AllocationLaw& operator=(const AllocationLaw&) = delete;

 private:
  static constexpr std::size_t slack = 64;  // a text's end, and one byte to see one too many
  static void note(const volatile void*, std::size_t bytes) {
    largest_ = std::max(largest_, bytes);
  }
  static inline std::size_t largest_ = 0;
  std::size_t most_;
};

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
  const model::ByName tensors = model::by_name(file);
  // It builds each ResNet, which takes longer than all else. A file tried alone is compared.
  static std::size_t files = 0;
  if (files++ % 64 == 0) model::deduce(tensors, files % 128 == 1);
}

}  // namespace lockstep::fuzz
