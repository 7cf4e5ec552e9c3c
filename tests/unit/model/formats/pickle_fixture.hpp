#pragma once

#include <string>
#include <vector>

#include "tests/unit/model/formats/zip_fixture.hpp"

// Pickles as PyTorch writes them, by hand.
namespace lockstep::test {

inline std::string text_code(const std::string& text) {
  return "X" + little(static_cast<std::uint32_t>(text.size())) + text;
}
inline std::string number_code(int number) { return "J" + little(number); }
inline std::string tuple_code(const std::vector<int>& numbers) {
  std::string codes = "(";
  for (const int number : numbers) codes += number_code(number);
  return codes + "t";
}
inline std::string global_code(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}

struct TensorForm {
  std::string name = "a", storage = "0", type = "FloatStorage";
  int count = 0, first = 0;  ///< of the storage; of the tensor in it
  std::vector<int> shape, strides;
  bool old = false;
};

/// A name and its tensor, as two values.
inline std::string tensor_code(const TensorForm& form) {
  return text_code(form.name) + global_code("torch._utils", "_rebuild_tensor_v2") + "((" +
         text_code("storage") + global_code("torch", form.type) + text_code(form.storage) +
         text_code("cpu") + number_code(form.count) + (form.old ? "N" : "") + "tQ" +
         number_code(form.first) + tuple_code(form.shape) + tuple_code(form.strides) + "\x89" +
         global_code("collections", "OrderedDict") + ")RtR";
}

inline std::string pickle_of(const std::string& codes) { return "\x80\x02" + codes + "."; }
/// A dictionary of these names and values.
inline std::string dictionary_code(const std::string& codes) { return "}(" + codes + "u"; }

inline std::string pth_file(const std::string& pickle, const Members& storages) {
  Members members = {{"any/data.pkl", pickle}, {"any/version", "3\n"}};
  for (const auto& [key, bytes] : storages) members.emplace_back("any/data/" + key, bytes);
  return zip_file(members);
}

}  // namespace lockstep::test
