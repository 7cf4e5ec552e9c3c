#include "model/formats/entries.hpp"

#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/model/formats/formats.hpp"

namespace lockstep::model {
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
  if (!input.mean.empty()) notes["mean"] = json_text(Json(input.mean));
  if (!input.stddev.empty()) notes["stddev"] = json_text(Json(input.stddev));
  if (!input.classes.empty()) notes["classes"] = json_text(Json(input.classes));
  if (about.preparation.short_side > 0) {
    notes["fit"] = choice_name(about.preparation.fit);
    notes["short_side"] = std::to_string(about.preparation.short_side);
  }
  if (!model.settings.empty()) notes["settings"] = json_text(Json(model.settings));
  return notes;
}

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
