#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/control.hpp"

/// Writes values for other ranks of the run, which all run the same program: numbers as they are in
/// memory, texts and lists after their length. Your own type lists its fields, which may be
/// records, too:
///   static void fields(auto& self, auto&& visit) { visit(self.rank, self.reason); }
/// or with their names, for JSON, too (base/text/json_fields.hpp).
namespace lockstep::comm {

/// Fields with names: all are there, whatever JSON leaves out.
template <class Visitor>
class NamedFields {
 public:
  void later(const char*, auto& value, auto...) { visit(value); }
  void nullable(const char*, auto& value) { visit(value); }
  void unless_empty(const char*, auto& value) { visit(value); }
  void group(const char*, auto& value) { visit(value); }
  void stamp(const char*, auto& value) { visit(value); }

 private:
  void visit(auto& value) { static_cast<Visitor&> (*this)(value); }
};

class RecordWriter : public NamedFields<RecordWriter> {
 public:
  template <class Value>
  void operator()(const char*, const Value& value, auto...) {
    put(value);
  }
  template <class... Values>
  void operator()(const Values&... values) {
    (put(values), ...);
  }
  std::string take() { return std::move(bytes_); }

 private:
  template <class Value>
  void put(const Value& value) {
    if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value>)
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    else
      Value::fields(value, *this);
  }
  void put(const std::string& text) {
    put(std::uint64_t{text.size()});
    bytes_ += text;
  }
  template <class Value>
  void put(const std::optional<Value>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class Value, std::size_t size>
  void put(const std::array<Value, size>& values) {
    for (const Value& value : values) put(value);
  }
  template <class Value>
  void put(const std::vector<Value>& values) {
    put(std::uint64_t{values.size()});
    for (const Value& value : values) put(value);
  }
  template <class Key, class Value>
  void put(const std::map<Key, Value>& values) {
    put(std::uint64_t{values.size()});
    for (const auto& [key, value] : values) {
      put(key);
      put(value);
    }
  }

  std::string bytes_;
};

/// Reads what RecordWriter wrote. Throws Error when the bytes end too soon.
class RecordReader : public NamedFields<RecordReader> {
 public:
  explicit RecordReader(std::string_view bytes) : bytes_(bytes) {}
  template <class Value>
  void operator()(const char*, Value& value, auto...) {
    get(value);
  }
  template <class... Values>
  void operator()(Values&... values) {
    (get(values), ...);
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view cut(std::uint64_t size) {
    check(size <= bytes_.size(), "a record from another rank ends too soon");
    const std::string_view part = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return part;
  }
  std::uint64_t count() {
    std::uint64_t number = 0;
    get(number);
    return number;
  }
  template <class Value>
  void get(Value& value) {
    if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value>)
      std::memcpy(&value, cut(sizeof value).data(), sizeof value);
    else
      Value::fields(value, *this);
  }
  void get(std::string& text) { text = cut(count()); }
  template <class Value>
  void get(std::optional<Value>& value) {
    bool there = false;
    get(there);
    value.reset();
    if (there) get(value.emplace());
  }
  template <class Value, std::size_t size>
  void get(std::array<Value, size>& values) {
    for (Value& value : values) get(value);
  }
  template <class Value>
  void get(std::vector<Value>& values) {
    values.clear();
    for (std::uint64_t left = count(); left > 0; --left) get(values.emplace_back());
  }
  template <class Key, class Value>
  void get(std::map<Key, Value>& values) {
    values.clear();
    for (std::uint64_t left = count(); left > 0; --left) {
      Key key{};
      get(key);
      get(values[std::move(key)]);
    }
  }

  std::string_view bytes_;
};

template <class Value>
std::string write_record(const Value& value) {
  RecordWriter writer;
  writer(value);
  return writer.take();
}

/// Throws Error when the text is not exactly one such value.
template <class Value>
Value read_record(std::string_view bytes) {
  RecordReader reader(bytes);
  Value value{};
  reader(value);
  check(reader.at_end(), "a record from another rank is longer than it should be");
  return value;
}

/// Collective: the values of all ranks, by rank, on every rank.
template <class Value>
std::vector<Value> gather_records(Control& control, const Value& mine, std::string_view phase) {
  std::vector<Value> all;
  for (const std::string& bytes : control.gather(write_record(mine), phase))
    all.push_back(read_record<Value>(bytes));
  return all;
}

/// Collective: the values of all ranks, by rank, on rank 0; nothing on the others.
template <class Value>
std::vector<Value> gather_records_at_root(Control& control, const Value& mine,
                                          std::string_view phase) {
  std::vector<Value> all;
  for (const std::string& bytes : control.gather_at_root(write_record(mine), phase))
    all.push_back(read_record<Value>(bytes));
  return all;
}

/// Collective: the lists of all ranks in one, in the order of the ranks, on every rank.
template <class Value>
std::vector<Value> join_records(Control& control, const std::vector<Value>& mine,
                                std::string_view phase) {
  return read_record<std::vector<Value>>(
      control.combine(write_record(mine), phase, [](const std::vector<std::string>& by_rank) {
        std::vector<Value> all;
        for (const std::string& bytes : by_rank)
          for (Value& value : read_record<std::vector<Value>>(bytes))
            all.push_back(std::move(value));
        return write_record(all);
      }));
}

/// Collective: rank 0's value, on every rank.
template <class Value>
Value broadcast_record(Control& control, const Value& from_root, std::string_view phase) {
  return read_record<Value>(control.broadcast(write_record(from_root), phase));
}

}  // namespace lockstep::comm
