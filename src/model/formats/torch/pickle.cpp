// Opcodes: CPython's Lib/pickletools.py.
#include "model/formats/torch/pickle.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "model/formats/stored_tensor.hpp"

namespace lockstep::model {
namespace {

// A ResNet-152 with the state of its optimizer has 50 000 values.
constexpr std::size_t most_values = 1 << 18, longest_pickle = std::size_t{1} << 24;
constexpr std::size_t longest_name = 200;

[[noreturn]] void damaged() { throw InputError("its pickle is damaged"); }

}  // namespace

/// Runs the opcodes. Marks are places on the stack.
class PickleReader {
 public:
  PickleReader(Pickle& pickle, std::string_view bytes, std::span<const std::string_view> allowed)
      : pickle_(pickle), left_(bytes.substr(0, longest_pickle)), allowed_(allowed) {}

  void read() {
    const std::size_t all = left_.size();
    while (step(static_cast<std::uint8_t>(take(1)[0]))) {
    }
    pickle_.root_ = pop();
    pickle_.bytes_ = all - left_.size();
  }

 private:
  using Kind = Pickle::Kind;
  using Value = Pickle::Value;

  std::string_view take(std::size_t count) {
    require(count <= left_.size(),
            fmt::format("its pickle is cut off, or longer than {} bytes", longest_pickle));
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  template <class Number>
  Number number() {
    Number value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view line() {
    const std::size_t end = left_.substr(0, longest_name).find('\n');
    if (end == left_.npos) damaged();
    const std::string_view text = take(end);
    take(1);
    return text;
  }
  /// A whole number of `count` bytes.
  std::int64_t long_number(std::size_t count) {
    require(count <= longest_name, "its pickle has a number that is too long");
    const std::string_view bytes = take(count);
    // Longer ones are of no use here: PyTorch's magic number is one.
    if (count > sizeof(std::int64_t)) return 0;
    std::int64_t value = !bytes.empty() && (bytes.back() & 0x80) != 0 ? -1 : 0;
    std::memcpy(&value, bytes.data(), count);
    return value;
  }

  void push(Value value) {
    require(pickle_.values_.size() < most_values,
            fmt::format("its pickle has more than {} values", most_values));
    stack_.push_back(static_cast<std::uint32_t>(pickle_.values_.size()));
    pickle_.values_.push_back(std::move(value));
  }
  void push(Kind kind, std::vector<std::uint32_t> items = {}) {
    push({.kind = kind, .items = std::move(items)});
  }
  void push_text(std::string_view text) { push({.kind = Kind::text, .text = std::string(text)}); }
  void push_number(Kind kind, std::int64_t value) { push({.kind = kind, .number = value}); }
  void push_name(std::string_view module, std::string_view name) {
    std::string full = fmt::format("{}.{}", module, name);
    require(std::find(allowed_.begin(), allowed_.end(), full) != allowed_.end(),
            fmt::format("its pickle would call '{}', which lockstep does not; save only the "
                        "tensors, by torch.save(model.state_dict(), FILE)",
                        printable(full)));
    push({.kind = Kind::name, .text = std::move(full)});
  }
  std::uint32_t pop() {
    if (stack_.size() <= floor()) damaged();
    const std::uint32_t index = stack_.back();
    stack_.pop_back();
    return index;
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  /// The last `count` values, or those since the newest mark.
  std::vector<std::uint32_t> pop_many(std::size_t count) {
    if (stack_.size() - floor() < count) damaged();
    std::vector<std::uint32_t> items(stack_.end() - static_cast<std::ptrdiff_t>(count),
                                     stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  std::vector<std::uint32_t> pop_to_mark() {
    if (marks_.empty()) damaged();
    std::vector<std::uint32_t> items = pop_many(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }
  Value& top(Kind kind) {
    if (stack_.size() <= floor() || pickle_.values_[stack_.back()].kind != kind) damaged();
    return pickle_.values_[stack_.back()];
  }
  /// Adds to the list or dictionary on top.
  void extend(Kind kind, const std::vector<std::uint32_t>& items) {
    Value& value = top(kind);
    if (kind == Kind::dictionary && items.size() % 2 != 0) damaged();
    if (value.items.size() + items.size() > most_values) damaged();
    value.items.insert(value.items.end(), items.begin(), items.end());
  }

  void remember(std::uint32_t place) {
    if (stack_.size() <= floor()) damaged();
    require(memo_.size() < most_values,
            fmt::format("its pickle remembers more than {} values", most_values));
    memo_[place] = stack_.back();
  }
  void recall(std::uint32_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end() || stack_.size() >= 4 * most_values) damaged();
    stack_.push_back(found->second);
  }

  void call() {
    const std::uint32_t arguments = pop(), function = pop();
    const Value &what = pickle_.at(function), &with = pickle_.at(arguments);
    if (what.kind != Kind::name || with.kind != Kind::tuple) damaged();
    if (what.text == "collections.OrderedDict" && with.items.empty())
      push(Kind::dictionary);
    else
      push({.kind = Kind::call, .text = what.text, .items = {arguments}});
  }
  /// Sets attributes of an object. Those of a dictionary (a state dict's `_metadata`) are not
  /// needed; other objects have none.
  void build() {
    pop();
    top(Kind::dictionary);
  }

  bool step(std::uint8_t code);
  bool step_of_names(std::uint8_t code);
  bool step_of_values(std::uint8_t code);
  bool step_of_memory(std::uint8_t code);

  Pickle& pickle_;
  std::string_view left_;
  std::span<const std::string_view> allowed_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, std::uint32_t> memo_;
};

/// One opcode. False after the last one.
bool PickleReader::step(std::uint8_t code) {
  if (code == '.') return false;
  if (code == '(') {  // MARK
    if (marks_.size() >= most_values) damaged();
    marks_.push_back(stack_.size());
  } else if (!step_of_values(code) && !step_of_memory(code) && !step_of_names(code)) {
    throw InputError(fmt::format("its pickle has the opcode 0x{:02x}, which is not known", code));
  }
  return true;
}

/// Opcodes that push a value. False for others.
bool PickleReader::step_of_values(std::uint8_t code) {
  switch (code) {
    case 'N':  // NONE
      return push(Kind::none), true;
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      return push_number(Kind::flag, code == 0x88), true;
    case 'J':  // BININT
      return push_number(Kind::number, number<std::int32_t>()), true;
    case 'K':  // BININT1
      return push_number(Kind::number, number<std::uint8_t>()), true;
    case 'M':  // BININT2
      return push_number(Kind::number, number<std::uint16_t>()), true;
    case 0x8a:  // LONG1
      return push_number(Kind::number, long_number(number<std::uint8_t>())), true;
    case 'G':  // BINFLOAT
      return take(8), push(Kind::real), true;
    case 'X':  // BINUNICODE
    case 'T':  // BINSTRING
      return push_text(take(number<std::uint32_t>())), true;
    case 0x8c:  // SHORT_BINUNICODE
    case 'U':   // SHORT_BINSTRING
      return push_text(take(number<std::uint8_t>())), true;
    case ']':  // EMPTY_LIST
      return push(Kind::list), true;
    case '}':  // EMPTY_DICT
      return push(Kind::dictionary), true;
    case ')':  // EMPTY_TUPLE
      return push(Kind::tuple), true;
    case 't':  // TUPLE
      return push(Kind::tuple, pop_to_mark()), true;
    case 0x85:  // TUPLE1
    case 0x86:  // TUPLE2
    case 0x87:  // TUPLE3
      return push(Kind::tuple, pop_many(code - 0x84u)), true;
    default:
      return false;
  }
}

/// Opcodes of the memo and of what is already on the stack.
bool PickleReader::step_of_memory(std::uint8_t code) {
  switch (code) {
    case 'q':  // BINPUT
      return remember(number<std::uint8_t>()), true;
    case 'r':  // LONG_BINPUT
      return remember(number<std::uint32_t>()), true;
    case 0x94:  // MEMOIZE
      return remember(static_cast<std::uint32_t>(memo_.size())), true;
    case 'h':  // BINGET
      return recall(number<std::uint8_t>()), true;
    case 'j':  // LONG_BINGET
      return recall(number<std::uint32_t>()), true;
    case 'a':  // APPEND
      return extend(Kind::list, pop_many(1)), true;
    case 'e':  // APPENDS
      return extend(Kind::list, pop_to_mark()), true;
    case 's':  // SETITEM
      return extend(Kind::dictionary, pop_many(2)), true;
    case 'u':  // SETITEMS
      return extend(Kind::dictionary, pop_to_mark()), true;
    case '0':  // POP
      return pop(), true;
    default:
      return false;
  }
}

/// Opcodes of names and calls, and of the pickle's frame.
bool PickleReader::step_of_names(std::uint8_t code) {
  switch (code) {
    case 0x80: {  // PROTO
      const int protocol = number<std::uint8_t>();
      require(protocol >= 2 && protocol <= 5,
              fmt::format("its pickle has protocol {}; 2 to 5 are read", protocol));
      return true;
    }
    case 0x95:  // FRAME
      return number<std::uint64_t>(), true;
    case 'c': {  // GLOBAL
      const std::string_view module = line();
      return push_name(module, line()), true;
    }
    case 0x93: {  // STACK_GLOBAL
      const std::uint32_t name = pop(), module = pop();
      if (pickle_.at(name).kind != Kind::text || pickle_.at(module).kind != Kind::text) damaged();
      const std::string text = pickle_.at(module).text;
      return push_name(text, pickle_.at(name).text), true;
    }
    case 'Q': {  // BINPERSID
      const std::uint32_t id = pop();
      if (pickle_.at(id).kind != Kind::tuple) damaged();
      return push(Kind::persistent, {id}), true;
    }
    case 'R':  // REDUCE
      return call(), true;
    case 'b':  // BUILD
      return build(), true;
    default:
      return false;
  }
}

Pickle::Pickle(std::string_view bytes, std::span<const std::string_view> allowed) {
  PickleReader(*this, bytes, allowed).read();
}

const Pickle::Value* Pickle::find(const Value& dictionary, std::string_view key) const {
  const Value* found = nullptr;
  for (std::size_t i = 0; i + 1 < dictionary.items.size(); i += 2) {
    const Value& name = at(dictionary.items[i]);
    if (name.kind == Kind::text && name.text == key) found = &at(dictionary.items[i + 1]);
  }
  return found;
}

}  // namespace lockstep::model
