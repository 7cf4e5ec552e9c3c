#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/observe/records.hpp"

namespace lockstep::observe {

/// A long run has half a million lines of steps, for which a tree of JSON takes several seconds.
/// This reads an object of numbers, nulls and plain texts where it lies, and takes nothing that it
/// does not understand as a tree of JSON would: good() is then false, and the caller reads the
/// tree.
class FlatLine {
 public:
  explicit FlatLine(std::string_view line) : left_(line) { good_ = split() && left_.empty(); }

  /// The text of a field; empty without one.
  std::string_view text_of(std::string_view name) const {
    const Field* field = find(name);
    return field && field->value.starts_with('"') ? field->value.substr(1, field->value.size() - 2)
                                                  : std::string_view();
  }
  /// Every field was read, once, and as what it is.
  bool good() const { return good_ && read_ == count_; }

  template <class Value>
  void operator()(const char* name, Value& value, Form = Form::plain) {
    if (const Field* field = find(name))
      get(*field, value);
    else
      good_ = false;
  }
  template <class Value>
  void later(const char* name, Value& value, Form = Form::plain) {
    if (const Field* field = find(name)) get(*field, value);
  }
  template <class Fields>
  void group(const char* first, std::optional<Fields>& fields) {
    fields.reset();
    if (find(first)) Fields::fields(fields.emplace(), *this);
  }
  void stamp(const char*, std::uint64_t& time_ms) {
    read_ += find("kind") != nullptr;
    later("time_ms", time_ms);
  }

 private:
  struct Field {
    std::string_view name, value;
  };

  bool split() {
    if (!take('{')) return false;
    do {
      if (count_ == fields_.size()) return false;
      Field& field = fields_[count_++];
      field.name = take_text();
      if (field.name.size() < 3 || !take(':')) return false;
      field.name = field.name.substr(1, field.name.size() - 2);
      field.value =
          left_.starts_with('"') ? take_text() : left_.substr(0, left_.find_first_of(",}"));
      if (!field.value.starts_with('"')) left_.remove_prefix(field.value.size());
      if (field.value.empty()) return false;
    } while (take(','));
    return take('}');
  }
  bool take(char c) {
    if (!left_.starts_with(c)) return false;
    left_.remove_prefix(1);
    return true;
  }
  /// With its quotation marks; empty where it is no plain text.
  std::string_view take_text() {
    const std::size_t end = left_.starts_with('"') ? left_.find('"', 1) : left_.npos;
    if (end == left_.npos) return {};
    const std::string_view text = left_.substr(0, end + 1);
    left_.remove_prefix(end + 1);
    for (const char c : text)
      if (c == '\\' || static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~')
        return {};
    return text;
  }
  const Field* find(std::string_view name) const {
    for (std::size_t k = 0; k < count_; ++k)
      if (fields_[k].name == name) return &fields_[k];
    return nullptr;
  }

  /// What JSON has as a number: no sign in front but a minus, no zero before other digits.
  static bool json_number(std::string_view text) {
    const std::size_t digits = text.find_first_not_of('-');
    return digits < 2 && digits < text.size() && text[digits] >= '0' && text[digits] <= '9' &&
           text.back() >= '0' && text.back() <= '9' && text.find(".e") == text.npos &&
           text.find(".E") == text.npos &&
           (text[digits] != '0' || digits + 1 == text.size() || text[digits + 1] < '0' ||
            text[digits + 1] > '9');
  }
  template <class Value>
  void parse(const Field& field, Value& value) {
    const char* end = field.value.data() + field.value.size();
    const auto [stop, error] = std::from_chars(field.value.data(), end, value);
    good_ = good_ && json_number(field.value) && error == std::errc() && stop == end;
    ++read_;
  }
  void get(const Field& field, std::uint64_t& value) { parse(field, value); }
  template <std::floating_point Value>
  void get(const Field& field, Value& value) {
    if (field.value == "null") {
      value = std::numeric_limits<Value>::quiet_NaN();
      ++read_;
      return;
    }
    double number = 0;
    parse(field, number);
    value = static_cast<Value>(number);
  }
  template <class Value>
  void get(const Field& field, std::optional<Value>& value) {
    value.reset();
    if (field.value == "null")
      ++read_;
    else
      get(field, value.emplace());
  }

  std::string_view left_;
  std::array<Field, 40> fields_;
  std::size_t count_ = 0, read_ = 0;
  bool good_ = false;
};

/// A step's line; empty where the line is something else, or is for a tree of JSON to judge.
inline std::optional<StepRecord> flat_step(std::string_view line) {
  FlatLine flat(line);
  if (flat.text_of("kind") != "step") return std::nullopt;
  StepRecord step;
  StepRecord::fields(step, flat);
  if (!flat.good()) return std::nullopt;
  return step;
}

}  // namespace lockstep::observe
