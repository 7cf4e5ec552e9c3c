#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/choices.hpp"

/// A struct lists its fields once, with their names; JSON is written and read by that list, and
/// comm/record.hpp sends it to other ranks:
///   static void fields(auto& self, auto&& visit) {
///     visit("rank", self.rank);
///     visit.later("time_ms", self.time_ms, Form::ms);
///   }
/// Fields are numbers, texts, truth values, such structs, and optionals, lists and maps of these.
/// Where `Json` is a template's argument, it is a value of nlohmann's, of either order.
namespace lockstep {

/// How a number is written. One that is not finite is null.
enum class Form {
  plain,
  mean,   ///< 9 significant digits
  share,  ///< 6 decimals
  ms,     ///< 3 decimals
  rate    ///< 1 decimal
};

std::string number_text(double value, Form form);
std::string number_text(float value);
std::string json_string(std::string_view text);  ///< as a string of JSON

/// Visits a record's fields and writes them as JSON: on one line, or one field a line.
class JsonWriter {
 public:
  explicit JsonWriter(bool indented = false) : indented_(indented) {}

  template <class Value>
  void operator()(const char* name, const Value& value, Form form = Form::plain) {
    begin(name);
    put(value, form);
  }
  template <class Value>
  void later(const char* name, const Value& value, Form form = Form::plain) {
    (*this)(name, value, form);
  }
  template <class Value>
  void later(const char* name, const std::optional<Value>& value, Form form = Form::plain) {
    if (value) (*this)(name, *value, form);
  }
  /// Always written; null without a value.
  template <class Value>
  void nullable(const char* name, const std::optional<Value>& value) {
    (*this)(name, value);
  }
  /// Of a text or list.
  void unless_empty(const char* name, const auto& value) {
    if (!value.empty()) (*this)(name, value);
  }
  template <class Fields>
  void group(const char*, const std::optional<Fields>& fields) {
    if (fields) Fields::fields(*fields, *this);
  }
  void stamp(const char* kind, std::uint64_t time_ms) {
    (*this)("kind", std::string(kind));
    (*this)("time_ms", time_ms);
  }

  /// The object of all fields so far.
  std::string take() {
    depth_ = 0;
    return "{" + text_ + (indented_ && !text_.empty() ? "\n}" : "}");
  }

 private:
  void begin(const char* name) {
    if (!text_.empty() && text_.back() != '{') text_ += ',';
    if (indented_) text_ += '\n' + std::string(2 * (depth_ + 1), ' ');
    text_ += std::string("\"") + name + (indented_ ? "\": " : "\":");
  }
  void put(bool value, Form) { text_ += value ? "true" : "false"; }
  void put(const std::string& value, Form) { text_ += json_string(value); }
  template <Enumerated Value>
  void put(Value value, Form form) {
    put(std::string(choice_name(value)), form);
  }
  void put(std::integral auto value, Form) { text_ += std::to_string(value); }
  void put(float value, Form) { text_ += number_text(value); }
  void put(double value, Form form) { text_ += number_text(value, form); }
  template <class Value>
  void put(const std::optional<Value>& value, Form form) {
    if (value)
      put(*value, form);
    else
      text_ += "null";
  }
  template <class Value>
  void put(const std::vector<Value>& values, Form form) {
    text_ += '[';
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) text_ += indented_ ? ", " : ",";
      put(values[i], form);
    }
    text_ += ']';
  }
  template <class Value>
  void put(const std::map<std::string, Value>& values, Form form) {
    inside([&] {
      for (const auto& [key, value] : values) {
        const std::string name = json_string(key);
        (*this)(name.substr(1, name.size() - 2).c_str(), value, form);
      }
    });
  }
  template <class Value>
  requires requires(const Value& value, JsonWriter& writer) { Value::fields(value, writer); }
  void put(const Value& value, Form) {
    inside([&] { Value::fields(value, *this); });
  }
  void inside(auto&& write) {
    text_ += '{';
    ++depth_;
    write();
    --depth_;
    if (indented_ && text_.back() != '{') text_ += '\n' + std::string(2 * (depth_ + 1), ' ');
    text_ += '}';
  }

  std::string text_;
  bool indented_;
  std::size_t depth_ = 0;
};

/// Visits a record's fields and reads them from JSON; it ignores other fields. Throws InputError
/// naming the field that is missing or has another type.
template <class Json>
class JsonReader {
 public:
  /// Throws InputError unless it is an object.
  explicit JsonReader(const Json& json) : json_(json) {
    if (!json.is_object()) throw InputError("it is not a JSON object");
  }

  template <class Value>
  void operator()(const char* name, Value& value, Form = Form::plain) {
    const auto found = json_.find(name);
    if (found == json_.end()) throw InputError(std::string("it has no \"") + name + "\"");
    get(name, *found, value);
  }
  template <class Value>
  void later(const char* name, Value& value, Form = Form::plain) {
    if (const auto found = json_.find(name); found != json_.end()) get(name, *found, value);
  }
  template <class Value>
  void nullable(const char* name, std::optional<Value>& value) {
    later(name, value);
  }
  void unless_empty(const char* name, auto& value) { later(name, value); }
  /// `first`: a field that the group always has.
  template <class Fields>
  void group(const char* first, std::optional<Fields>& fields) {
    fields.reset();
    if (json_.contains(first)) Fields::fields(fields.emplace(), *this);
  }
  void stamp(const char*, std::uint64_t& time_ms) { later("time_ms", time_ms); }

 private:
  static void want(bool good, const char* name, const char* what) {
    if (!good) throw InputError(std::string("\"") + name + "\" is not " + what);
  }
  void get(const char* name, const Json& json, bool& value) {
    want(json.is_boolean(), name, "true or false");
    value = json.template get<bool>();
  }
  void get(const char* name, const Json& json, std::string& value) {
    want(json.is_string(), name, "a text");
    value = json.template get<std::string>();
  }
  /// A name that only a newer program knows counts as none.
  template <Enumerated Value>
  void get(const char* name, const Json& json, Value& value) {
    want(json.is_string(), name, "a text");
    value = find_choice<Value>(json.template get<std::string>()).value_or(value);
  }
  template <std::integral Value>
  void get(const char* name, const Json& json, Value& value) {
    const bool whole =
        std::is_signed_v<Value> ? json.is_number_integer() : json.is_number_unsigned();
    want(whole, name, "a whole number");
    value = json.template get<Value>();
    want(Json(value) == json, name, "a number of its range");
  }
  template <std::floating_point Value>
  void get(const char* name, const Json& json, Value& value) {
    want(json.is_number() || json.is_null(), name, "a number");
    value = json.is_null() ? std::numeric_limits<Value>::quiet_NaN() : json.template get<Value>();
  }
  template <class Value>
  void get(const char* name, const Json& json, std::optional<Value>& value) {
    value.reset();
    if (!json.is_null()) get(name, json, value.emplace());
  }
  template <class Value>
  void get(const char* name, const Json& json, std::vector<Value>& values) {
    want(json.is_array(), name, "a list");
    values.clear();
    for (const Json& one : json) get(name, one, values.emplace_back());
  }
  template <class Value>
  void get(const char* name, const Json& json, std::map<std::string, Value>& values) {
    want(json.is_object(), name, "an object");
    values.clear();
    for (const auto& [key, one] : json.items()) get(name, one, values[key]);
  }
  template <class Value>
  requires requires(Value& value, JsonReader& reader) { Value::fields(value, reader); }
  void get(const char* name, const Json& json, Value& value) {
    want(json.is_object(), name, "an object");
    try {
      JsonReader inner(json);
      Value::fields(value, inner);
    } catch (const InputError& error) {
      throw InputError(std::string(name) + ": " + error.what());
    }
  }

  const Json& json_;
};

template <class Value>
std::string fields_to_json(const Value& value, bool indented = false) {
  JsonWriter writer(indented);
  Value::fields(value, writer);
  return writer.take();
}

template <class Value, class Json>
Value fields_from_json(const Json& json) {
  JsonReader reader(json);
  Value value{};
  Value::fields(value, reader);
  return value;
}

/// Throws InputError naming the text's origin, and so does the next.
template <class Json>
Json parse_json(const std::string& text, const std::string& origin) {
  Json json = Json::parse(text, nullptr, false);
  require(!json.is_discarded(), origin + ": is not JSON");
  return json;
}

/// `hint`: what to do where something is wrong; may be empty.
template <class Value, class Json>
Value read_fields(const Json& json, const std::string& origin, const std::string& hint = "") {
  try {
    return fields_from_json<Value>(json);
  } catch (const InputError& error) {
    throw InputError(origin + ": " + error.what() + (hint.empty() ? "" : "; ") + hint);
  }
}

}  // namespace lockstep
