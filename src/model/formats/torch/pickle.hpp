#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Python's pickles, which are programs: opcodes that push values, and may call any function by
// name. This reader calls none. It only notes that a call would be made, of a name in a fixed list;
// any other name is an error.
namespace lockstep::model {

class Pickle {
 public:
  enum class Kind {
    none,
    flag,        ///< number
    number,      ///< number
    real,        ///< its value is not kept
    text,        ///< text
    list,        ///< items
    tuple,       ///< items
    dictionary,  ///< items: key, value, key, value, ...
    name,        ///< text: "torch.FloatStorage"
    call,        ///< text: the name; items: one, the tuple of arguments
    persistent   ///< items: one, the tuple that says what torch.load() would look up
  };
  struct Value {
    Kind kind = Kind::none;
    std::int64_t number = 0;
    std::string text = {};
    std::vector<std::uint32_t> items = {};  ///< indices of values
  };

  /// Reads one pickle at the beginning of `bytes`, of protocol 2 to 5. `allowed`: names that it may
  /// have. Throws InputError naming what it must not hold, or saying that it is damaged.
  Pickle(std::string_view bytes, std::span<const std::string_view> allowed);

  const Value& root() const { return values_[root_]; }
  const Value& at(std::uint32_t index) const { return values_[index]; }
  /// The value of a dictionary's key, the last where it has several; null where it has none.
  const Value* find(const Value& dictionary, std::string_view key) const;
  const std::vector<Value>& values() const { return values_; }
  std::size_t bytes() const { return bytes_; }  ///< that it took

 private:
  friend class PickleReader;
  std::vector<Value> values_;
  std::uint32_t root_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::model
