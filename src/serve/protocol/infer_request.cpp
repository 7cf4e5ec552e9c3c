#include "serve/protocol/infer_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/table.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/element_bytes.hpp"
#include "serve/protocol/route.hpp"

namespace lockstep::serve {
namespace {

// A separate type, so that what reads it is compiled here, and optimized as this file is.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, long long,
                                  unsigned long long>;

// A number of JSON takes 16 bytes, an array of one number 100. More pixels come as binary tensors.
constexpr std::size_t longest_json = std::size_t{8} << 20, most_tensors = 16, most_dimensions = 8,
                      most_values = std::size_t{1} << 30, longest_name = 200,
                      most_likeliest = 1'000'000,
                      // Each member of an object is compared with those before it.
    most_members = 500, most_strings = std::size_t{1} << 20;
constexpr int deepest = 12;  // request, inputs, tensor, data, and its dimensions

constexpr std::array<std::string_view, 14> datatypes = {
    "BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16",
    "INT32", "INT64", "FP16",   "FP32",   "FP64",   "BF16", "BYTES"};

/// What reading a text would make; too much only where it is not JSON.
struct Form {
  int depth = 0;            ///< of arrays and objects in each other
  std::size_t members = 0;  ///< of all objects
  std::size_t arrays = 0, values = 0;
  /// About, and at most: vectors double their room, and have the old one while they do.
  std::size_t bytes(std::size_t text) const { return text + 64 * arrays + 3 * 16 * values; }
};

Form form_of(std::string_view text) {
  Form form;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      form.depth = std::max(form.depth, ++depth);
      ++form.arrays;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ':') {
      ++form.members;
    } else if (c == ',') {
      ++form.values;
    }
  }
  form.values += form.arrays;  // each has one more than commas
  return form;
}

Json parse_json(std::string_view text, ByteBudget::Share& share) {
  expect(text.size() <= longest_json,
         "the JSON of a request has at most {} bytes, but this has {}: send tensors as binary data",
         longest_json, text.size());
  const Form form = form_of(text);
  expect(form.depth <= deepest, "the JSON of a request is nested deeper than {} levels", deepest);
  expect(form.members <= most_members,
         "the objects of a request have at most {} members, but these have {}", most_members,
         form.members);
  if (!share.grow(form.bytes(text.size()))) throw RequestError(503, no_bytes_left);
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw RequestError(400, fmt::format("the request is not JSON: wrong at byte {}", error.byte));
  } catch (const Json::out_of_range&) {
    throw RequestError(400, "the request has a number that is too large");
  }
}

/// A field of an object; null where it is missing.
const Json& field(const Json& object, const char* name) {
  static const Json none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::string text_field(const Json& object, const char* name, const std::string& where) {
  const Json& value = field(object, name);
  expect(value.is_string(), "{}: '{}' is not a string", where, name);
  const auto& text = value.get_ref<const std::string&>();
  expect(width_of(text) <= longest_name, "{}: '{}' has more than {} characters", where, name,
         longest_name);
  return text;
}

const Json& parameters_of(const Json& object, const std::string& where) {
  const Json& parameters = field(object, "parameters");
  expect(parameters.is_null() || parameters.is_object(), "{}: 'parameters' is not an object",
         where);
  return parameters;
}

/// A whole number from 0, which may be written as 78.0.
std::optional<std::size_t> whole(const Json& value) {
  if (value.is_number_unsigned()) return value.get<std::size_t>();
  constexpr float most = 1 << 24;  // to which a float holds each whole number
  if (!value.is_number_float()) return std::nullopt;
  const float number = value.get<float>();
  if (!(number >= 0 && number <= most) || number != std::floor(number)) return std::nullopt;
  return static_cast<std::size_t>(number);
}

std::optional<std::size_t> count_parameter(const Json& parameters, const char* name,
                                           const std::string& where) {
  if (!parameters.is_object()) return std::nullopt;
  const Json& value = field(parameters, name);
  if (value.is_null()) return std::nullopt;
  const auto number = whole(value);
  expect(number.has_value(), "{}: the parameter '{}' is not a whole number", where, name);
  return number;
}

std::optional<bool> flag_parameter(const Json& parameters, const char* name,
                                   const std::string& where) {
  if (!parameters.is_object()) return std::nullopt;
  const Json& value = field(parameters, name);
  if (value.is_null()) return std::nullopt;
  expect(value.is_boolean(), "{}: the parameter '{}' is neither true nor false", where, name);
  return value.get<bool>();
}

/// Reads the shape; returns how many values it holds.
std::size_t read_shape(const Json& tensor, const std::string& where,
                       std::vector<std::size_t>& shape) {
  const Json& given = field(tensor, "shape");
  expect(given.is_array() && !given.empty() && given.size() <= most_dimensions,
         "{}: 'shape' is not an array of 1 to {} numbers", where, most_dimensions);
  std::size_t values = 1;
  for (const Json& one : given) {
    const std::size_t size = whole(one).value_or(0);
    expect(size > 0, "{}: 'shape' has something other than whole numbers from 1", where);
    expect(size <= most_values / values, "{}: a shape of more than {} values", where, most_values);
    values *= size;
    shape.push_back(size);
  }
  return values;
}

struct Range {
  double least, most;
  bool holds(const Json& value) const {
    return value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
  }
};

template <class Number>
constexpr Range range_of() {
  return {double{std::numeric_limits<Number>::lowest()},
          double{std::numeric_limits<Number>::max()}};
}

/// Appends the bytes of a number.
void take_number(const Json& one, data::Element element, const std::string& where,
                 std::vector<std::uint8_t>& to) {
  const bool whole = !data::is_float(element);
  const Range range = element == data::Element::u8    ? range_of<std::uint8_t>()
                      : element == data::Element::u16 ? range_of<std::uint16_t>()
                      : element == data::Element::i16 ? range_of<std::int16_t>()
                                                      : range_of<float>();
  const bool fits =
      range.holds(one) && (!whole || one.get<double>() == std::floor(one.get<double>()));
  expect(fits, "{}: 'data' has something other than {}numbers from {:g} to {:g}", where,
         whole ? "whole " : "", range.least, range.most);
  data::append_element(element, static_cast<float>(one.get<double>()), to);
}

/// Takes the values of nested arrays in their order.
void take_json(const Json& data, data::Element element, const std::string& where,
               InputTensor& tensor) {
  for (const Json& one : data) {
    if (one.is_array()) {
      take_json(one, element, where, tensor);
    } else if (tensor.pixels) {
      take_number(one, element, where, tensor.own_values);
    } else {
      expect(one.is_string(), "{}: 'data' has something other than strings", where);
      tensor.own_strings.push_back(one.get<std::string>());
    }
  }
}

/// Splits elements that each begin with their length, little-endian in four bytes.
void take_strings(std::string_view bytes, const std::string& where, std::size_t wanted,
                  InputTensor& tensor) {
  while (!bytes.empty()) {
    expect(tensor.strings.size() < wanted, "{}: its shape is of {} values, but it has more", where,
           wanted);
    std::uint32_t length = 0;
    expect(bytes.size() >= sizeof length, "{}: an element is cut off in its length", where);
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes.remove_prefix(sizeof length);
    expect(length <= bytes.size(), "{}: an element has a length of {} bytes, but {} are left",
           where, length, bytes.size());
    tensor.strings.push_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
}

/// Reads one tensor; takes its binary data from the beginning of `binary`.
InputTensor read_input(const Json& json, const std::string& place, const TakenInput& taken,
                       std::string_view& binary) {
  expect(json.is_object(), "{} is not an object", place);
  InputTensor tensor;
  tensor.name = text_field(json, "name", place);
  const std::string where = fmt::format("input '{}'", tensor.name);
  const std::string datatype = text_field(json, "datatype", where);
  expect(std::find(datatypes.begin(), datatypes.end(), datatype) != datatypes.end(),
         "{}: '{}' is not a datatype", where, datatype);
  const std::string of_numbers = datatype_of(taken.element);
  tensor.pixels = datatype == of_numbers;
  expect(tensor.pixels || (taken.files && datatype == "BYTES"),
         "{}: the datatype {} is not taken; {} is{}", where, datatype, of_numbers,
         taken.files ? ", for pixels, and BYTES, for JPEG and PNG files" : "");
  const std::size_t values = read_shape(json, where, tensor.shape);
  const Json& parameters = parameters_of(json, where);
  expect(!parameters.is_object() || !parameters.contains("shared_memory_region"),
         "{}: shared memory is not supported", where);
  expect(tensor.pixels || values <= most_strings, "{}: a shape of more than {} strings", where,
         most_strings);
  const auto size = count_parameter(parameters, "binary_data_size", where);
  const Json& data = field(json, "data");
  expect(size.has_value() != data.is_array(),
         "{}: has to have either an array 'data' or the parameter 'binary_data_size'", where);
  if (size) {
    expect(*size <= binary.size(), "{}: has {} bytes of binary data, but {} are left in the body",
           where, *size, binary.size());
    const std::string_view bytes = binary.substr(0, *size);
    binary.remove_prefix(*size);
    if (tensor.pixels)
      tensor.values = {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
    else
      take_strings(bytes, where, values, tensor);
  } else {
    expect(!tensor.pixels || taken.element != data::Element::f16,
           "{}: FP16 comes as binary data alone", where);
    take_json(data, taken.element, where, tensor);
    tensor.values = tensor.own_values;
    tensor.strings.assign(tensor.own_strings.begin(), tensor.own_strings.end());
  }
  const std::size_t each = tensor.pixels ? data::bytes_of(taken.element) : 1;
  const std::size_t got = tensor.pixels ? tensor.values.size() : tensor.strings.size();
  expect(got == values * each, "{}: its shape is of {} values, but it has {}{}", where, values,
         got / each, got % each == 0 ? "" : " and a piece of one");
  return tensor;
}

WantedOutput read_output(const Json& json, const std::string& place) {
  expect(json.is_object(), "{} is not an object", place);
  WantedOutput output;
  output.name = text_field(json, "name", place);
  const std::string where = fmt::format("output '{}'", output.name);
  const Json& parameters = parameters_of(json, where);
  expect(!parameters.is_object() || !parameters.contains("shared_memory_region"),
         "{}: shared memory is not supported", where);
  output.binary = flag_parameter(parameters, "binary_data", where);
  output.classification = count_parameter(parameters, "classification", where).value_or(0);
  expect(output.classification <= most_likeliest, "{}: a classification has at most {} classes",
         where, most_likeliest);
  return output;
}

/// The objects of an array, which may be missing.
const Json& list_field(const Json& request, const char* name) {
  const Json& list = field(request, name);
  expect(list.is_null() || (list.is_array() && list.size() <= most_tensors),
         "'{}' is not an array of at most {} objects", name, most_tensors);
  return list;
}

/// How many bytes of the body are JSON.
std::size_t json_bytes(std::string_view body, const std::optional<std::string>& json_length) {
  if (!json_length) return body.size();
  const auto length = whole_number<std::uint64_t>(*json_length);
  expect(length && *length <= body.size(),
         "Inference-Header-Content-Length: '{}' is not a number of bytes in a body of {}",
         *json_length, body.size());
  return *length;
}

}  // namespace

const char* datatype_of(data::Element element) {
  switch (element) {
    case data::Element::u8:
      return "UINT8";
    case data::Element::u16:
      return "UINT16";
    case data::Element::i16:
      return "INT16";
    case data::Element::f16:
      return "FP16";
    case data::Element::f32:
      break;
  }
  return "FP32";
}

bool is_raw(const std::optional<std::string>& json_length) {
  return json_length && whole_number<std::uint64_t>(*json_length) == std::uint64_t{0};
}

InferRequest parse_infer_request(std::string_view body,
                                 const std::optional<std::string>& json_length,
                                 const TakenInput& taken, ByteBudget::Share& share) {
  const std::size_t length = json_bytes(body, json_length);
  const Json json = parse_json(body.substr(0, length), share);
  expect(json.is_object(), "the request is not an object of JSON");
  InferRequest request;
  const std::string where = "the request";
  if (!field(json, "id").is_null()) request.id = text_field(json, "id", where);
  const Json& parameters = parameters_of(json, where);
  const auto timeout_us = count_parameter(parameters, "timeout", where);
  if (timeout_us.value_or(0) > 0) request.timeout_s = static_cast<double>(*timeout_us) * 1e-6;
  request.binary = flag_parameter(parameters, "binary_data_output", where).value_or(false);
  const Json &inputs = list_field(json, "inputs"), &outputs = list_field(json, "outputs");
  expect(inputs.is_array() && !inputs.empty(), "the request has no 'inputs'");
  std::string_view binary = body.substr(length);
  for (const Json& one : inputs)
    request.inputs.push_back(
        read_input(one, fmt::format("input {}", request.inputs.size()), taken, binary));
  expect(binary.empty(), "{} bytes of the body follow the last tensor", binary.size());
  for (const Json& one : outputs)
    request.outputs.push_back(read_output(one, fmt::format("output {}", request.outputs.size())));
  return request;
}

namespace {

using Ordered = nlohmann::ordered_json;
static_assert(std::endian::native == std::endian::little, "binary tensors are little-endian");

std::size_t binary_bytes(const OutputTensor& tensor) {
  std::size_t bytes = tensor.values.size() * sizeof(float);
  for (const std::string& one : tensor.strings) bytes += sizeof(std::uint32_t) + one.size();
  return bytes;
}

void append_binary(const OutputTensor& tensor, std::string& body) {
  body.append(reinterpret_cast<const char*>(tensor.values.data()),
              tensor.values.size() * sizeof(float));
  for (const std::string& one : tensor.strings) {
    const auto length = static_cast<std::uint32_t>(one.size());
    body.append(reinterpret_cast<const char*>(&length), sizeof length);
    body += one;
  }
}

void append_json(const OutputTensor& tensor, std::string& json) {
  json += fmt::format(R"({{"name":{},"datatype":"{}","shape":[{}],)", json_string(tensor.name),
                      tensor.strings.empty() ? "FP32" : "BYTES", join(tensor.shape, ","));
  if (tensor.binary)
    json += fmt::format(R"("parameters":{{"binary_data_size":{}}}}})", binary_bytes(tensor));
  else if (tensor.strings.empty())
    json += R"("data":)" + json_text(Ordered(tensor.values)) + "}";
  else
    json += R"("data":)" + json_text(Ordered(tensor.strings)) + "}";
}

}  // namespace

std::string infer_response_body(const InferResponse& response, std::size_t& json_length) {
  std::string body = fmt::format(R"({{"model_name":{},"model_version":{},)",
                                 json_string(response.model), json_string(response.version));
  if (!response.id.empty()) body += fmt::format(R"("id":{},)", json_string(response.id));
  body += R"("outputs":[)";
  for (const OutputTensor& tensor : response.outputs) {
    if (body.back() == '}') body += ',';
    append_json(tensor, body);
  }
  body += "]}";
  json_length = body.size();
  for (const OutputTensor& tensor : response.outputs)
    if (tensor.binary) append_binary(tensor, body);
  return body;
}

}  // namespace lockstep::serve
