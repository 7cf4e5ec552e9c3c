#include "model/formats/stored_tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/half.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/model/formats/formats.hpp"

namespace lockstep::model {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

template <class Number>
Number number_at(const char* bytes) {
  Number number{};
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

float from_f16(const char* bytes) { return widen_f16(number_at<std::uint16_t>(bytes)); }
float from_bf16(const char* bytes) { return widen_bf16(number_at<std::uint16_t>(bytes)); }
float from_f64(const char* bytes) { return static_cast<float>(number_at<double>(bytes)); }

constexpr std::array types = {
    NumberForm{"F32", "<f4", "FloatStorage", 4, number_at<float>},
    NumberForm{"F16", "<f2", "HalfStorage", 2, from_f16},
    NumberForm{"BF16", "", "BFloat16Storage", 2, from_bf16},
    NumberForm{"F64", "<f8", "DoubleStorage", 8, from_f64},
    NumberForm{"I64", "<i8", "LongStorage", 8, nullptr},
    NumberForm{"I32", "<i4", "IntStorage", 4, nullptr},
    NumberForm{"I16", "<i2", "ShortStorage", 2, nullptr},
    NumberForm{"I8", "|i1", "CharStorage", 1, nullptr},
    NumberForm{"U64", "<u8", "", 8, nullptr},
    NumberForm{"U32", "<u4", "", 4, nullptr},
    NumberForm{"U16", "<u2", "", 2, nullptr},
    NumberForm{"U8", "|u1", "ByteStorage", 1, nullptr},
    NumberForm{"BOOL", "|b1", "BoolStorage", 1, nullptr},
    NumberForm{"F8_E4M3", "", "", 1, nullptr},
    NumberForm{"F8_E5M2", "", "", 1, nullptr},
};

/// The element after the last one that the tensor reaches; it has some.
std::size_t end_of(const StoredTensor& tensor) {
  std::size_t last = tensor.first;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    std::size_t step = 0;
    require(!__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &step) &&
                !__builtin_add_overflow(last, step, &last),
            fmt::format("tensor '{}' reaches too far", printable(tensor.name)));
  }
  return last + 1;
}

/// Calls `take` with the bytes of each number, row by row.
template <class Take>
void walk(const StoredTensor& tensor, std::string_view bytes, Take&& take) {
  const std::size_t count = count_of(tensor.shape), size = tensor.type->bytes;
  if (count == 0) return;
  require(
      end_of(tensor) <= bytes.size() / size,
      fmt::format("tensor '{}' reaches beyond its {} bytes", printable(tensor.name), bytes.size()));
  std::vector<std::size_t> index(tensor.shape.size(), 0);
  std::size_t at = tensor.first;
  for (std::size_t i = 0; i < count; ++i) {
    take(bytes.data() + at * size);
    for (std::size_t d = index.size(); d-- > 0;) {
      at += tensor.strides[d];
      if (++index[d] < tensor.shape[d]) break;
      at -= index[d] * tensor.strides[d];
      index[d] = 0;
    }
  }
}

}  // namespace

const NumberForm* find_type(const char* NumberForm::*format, std::string_view name) {
  const auto found = std::find_if(types.begin(), types.end(), [&](const NumberForm& type) {
    return !name.empty() && type.*format == name;
  });
  return found == types.end() ? nullptr : &*found;
}

const NumberForm& f32() { return types[0]; }
const NumberForm& i64() { return types[4]; }

std::size_t memory_for(std::size_t file_bytes) { return 2 * file_bytes + (std::size_t{1} << 20); }

std::size_t count_of(const std::vector<std::size_t>& shape) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 16;
  std::size_t count = 1;
  for (const std::size_t extent : shape)
    require(!__builtin_mul_overflow(count, extent, &count) && count <= most,
            fmt::format("a shape of {} dimensions has too many numbers", shape.size()));
  return count;
}

std::vector<std::size_t> row_major(const std::vector<std::size_t>& shape) {
  std::vector<std::size_t> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

std::vector<float> values_of(const StoredTensor& tensor) {
  require(tensor.type->real != nullptr, fmt::format("tensor '{}' holds {}, which are no floats",
                                                    printable(tensor.name), tensor.type->name));
  std::string buffer;
  const std::string_view bytes = tensor.bytes(buffer);
  std::vector<float> values;
  const auto take = [&](const char* number) { values.push_back(tensor.type->real(number)); };
  if (count_of(tensor.shape) > 0 && end_of(tensor) <= bytes.size() / tensor.type->bytes)
    values.reserve(count_of(tensor.shape));
  walk(tensor, bytes, take);
  return values;
}

std::int64_t count_in(const StoredTensor& tensor) {
  if (tensor.type != &i64() || count_of(tensor.shape) != 1) return 0;
  std::string buffer;
  std::int64_t count = 0;
  walk(tensor, tensor.bytes(buffer),
       [&](const char* number) { count = number_at<std::int64_t>(number); });
  return std::max<std::int64_t>(count, 0);
}

std::string printable(std::string_view name) {
  constexpr std::size_t longest = 80;
  std::string text(name.substr(0, longest));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

namespace {

using Json = nlohmann::json;

constexpr const char *running_variance = "running_var", *counter = "num_batches_tracked";
constexpr std::size_t largest_side = 1 << 16;

std::string_view bytes_of(const void* first, std::size_t count) {
  return {static_cast<const char*>(first), count};
}

/// One note, as JSON of the type that `value` has. False where there is no such note.
template <class Value>
bool read_note(const std::map<std::string, std::string>& notes, const char* name, Value& value) {
  const auto found = notes.find(name);
  if (found == notes.end()) return false;
  try {
    value = Json::parse(found->second).get<Value>();
  } catch (const Json::exception&) {
    throw InputError(fmt::format("its note '{}' cannot be read", name));
  }
  return true;
}

std::size_t side_of(const std::map<std::string, std::string>& notes, const char* name,
                    std::size_t otherwise) {
  std::uint64_t side = otherwise;
  if (read_note(notes, name, side))
    require(side >= 1 && side <= largest_side,
            fmt::format("its note '{}' is not a number from 1 to {}", name, largest_side));
  return side;
}

}  // namespace

std::vector<const Weight*> in_forward_order(const Model& model) {
  std::vector<const Weight*> weights;
  for (const Weight& weight : model.weights) weights.push_back(&weight);
  std::stable_sort(weights.begin(), weights.end(), [](const Weight* a, const Weight* b) {
    return a->tensor.node < b->tensor.node;
  });
  return weights;
}

std::vector<Entry> entries_of(const Model& model) {
  std::vector<Entry> entries;
  for (const Weight* weight : in_forward_order(model)) {
    const nn::Tensor& tensor = weight->tensor;
    entries.push_back({tensor.name, &f32(), tensor.shape,
                       bytes_of(weight->values.data(), weight->values.size() * sizeof(float))});
    if (tensor.role != nn::Role::running_var) continue;
    std::string name = tensor.name;
    name.replace(name.size() - std::string_view(running_variance).size(), name.npos, counter);
    entries.push_back({std::move(name), &i64(), {}, bytes_of(&model.steps, sizeof model.steps)});
  }
  return entries;
}

std::string checksum_of(const Model& model) {
  std::uint32_t sum = 0;
  for (const Weight* weight : in_forward_order(model))
    sum = crc32c(weight->values.data(), weight->values.size() * sizeof(float), sum);
  return fmt::format("{:08x}", sum);
}

std::map<std::string, std::string> notes_of(const Model& model) {
  const Description& about = model.about;
  const data::DataSetInfo& input = about.input;
  std::map<std::string, std::string> notes{
      {"format", "pt"},  // what other programs expect: names and shapes are PyTorch's
      {"producer", this_producer},
      {"model", about.network.name},
      {"height", std::to_string(input.height)},
      {"width", std::to_string(input.width)},
      {"crc32c", checksum_of(model)}};
  if (input.element != data::Element::u8) notes["element"] = choice_name(input.element);
  if (input.no_data) notes["no_data"] = data::say_no_data(input);
  if (!input.shaping.low.empty()) notes["clip"] = data::limits_text(input.shaping);
  if (input.shaping.curve != data::Curve::linear) notes["curve"] = choice_name(input.shaping.curve);
  if (!input.mean.empty()) notes["mean"] = json_text(Json(input.mean));
  if (!input.stddev.empty()) notes["stddev"] = json_text(Json(input.stddev));
  if (input.task != data::Task::classes) notes["task"] = choice_name(input.task);
  if (input.task == data::Task::values) {
    notes["target_mean"] = json_text(Json(input.target_mean));
    notes["target_stddev"] = json_text(Json(input.target_stddev));
  }
  if (!input.classes.empty()) notes["classes"] = json_text(Json(input.classes));
  if (about.preparation.short_side > 0) {
    notes["fit"] = choice_name(about.preparation.fit);
    notes["short_side"] = std::to_string(about.preparation.short_side);
  }
  if (!model.settings.empty()) notes["settings"] = json_text(Json(model.settings));
  return notes;
}

namespace {

void read_limits(const std::string& text, data::DataSetInfo& input) {
  const std::vector<data::AskedLimits> limits = data::asked_limits(text);
  require(limits.size() == 1 || limits.size() == input.channels,
          fmt::format("its note 'clip' has limits of {} channels, not {}", limits.size(),
                      input.channels));
  require(!data::asks_percentiles(text), "its note 'clip' has no numbers");
  for (std::size_t c = 0; c < input.channels; ++c) {
    const data::AskedLimits& own = data::limits_of(limits, c);
    input.shaping.low.push_back(static_cast<float>(own.low.number));
    input.shaping.high.push_back(static_cast<float>(own.high.number));
  }
}

}  // namespace

void apply_notes(const std::map<std::string, std::string>& notes, Model& model) {
  const auto by = notes.find("producer");
  if (by == notes.end() || by->second != this_producer) return;
  Description& about = model.about;
  data::DataSetInfo& input = about.input;
  read_note(notes, "settings", model.settings);
  if (const auto steps = notes.find("steps"); steps != notes.end()) {
    const auto count = whole_number<std::uint64_t>(steps->second);
    require(count.has_value(), "its note 'steps' is not a whole number");
    model.steps = *count;
  }
  input.height = side_of(notes, "height", input.height);
  input.width = side_of(notes, "width", input.width);
  read_note(notes, "classes", input.classes);
  if (const auto element = notes.find("element"); element != notes.end())
    input.element = parse_choice<data::Element>(element->second, "its note 'element'");
  if (const auto task = notes.find("task"); task != notes.end())
    input.task = parse_choice<data::Task>(task->second, "its note 'task'");
  read_note(notes, "target_mean", input.target_mean);
  read_note(notes, "target_stddev", input.target_stddev);
  if (const auto no_data = notes.find("no_data"); no_data != notes.end()) {
    const auto number = real_number(no_data->second);
    require(number.has_value(), "its note 'no_data' is not a number");
    input.no_data = static_cast<float>(*number);
  }
  if (const auto curve = notes.find("curve"); curve != notes.end())
    input.shaping.curve = parse_choice<data::Curve>(curve->second, "its note 'curve'");
  if (const auto clip = notes.find("clip"); clip != notes.end()) read_limits(clip->second, input);
  read_note(notes, "mean", input.mean);
  read_note(notes, "stddev", input.stddev);
  require(input.mean.size() == input.stddev.size() &&
              (input.mean.empty() || input.mean.size() == input.channels),
          fmt::format("its notes 'mean' and 'stddev' do not have one value for each of {} channels",
                      input.channels));
  const auto fit = notes.find("fit");
  if (fit == notes.end()) return;
  about.preparation.fit = parse_choice<Resized>(fit->second, "its note 'fit'");
  about.preparation.short_side = side_of(notes, "short_side", about.preparation.short_side);
}

void check_notes(const std::map<std::string, std::string>& notes, const Model& model) {
  const auto by = notes.find("producer"), sum = notes.find("crc32c");
  if (by == notes.end() || by->second != this_producer || sum == notes.end()) return;
  require(sum->second == checksum_of(model),
          "its values were altered: they do not have the checksum that it names");
}

}  // namespace lockstep::model
