#include "train/decide/data_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/train/decide/packed_sets.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::train {
namespace {

void require_effect(bool has_effect, const std::string& setting, const std::string& why) {
  require(has_effect, fmt::format("{} would have no effect: {}", setting, why));
}

void refuse_idle_reading(const config::Config& config, const DataSets& paths,
                         const data::DataSet& training, const data::DataSet* validation) {
  const config::Config::Data given = config.data, usual;
  const bool external = validation != nullptr && validation->external();
  const std::string how = data::first_setting(external_spec(config));
  require_effect(how.empty() || training.external() || external, how,
                 paths.train + " holds shards, which say this themselves");
  for (const auto& [key, name] : {std::pair{"data.val-images", given.val_images},
                                  std::pair{"data.val-labels", given.val_labels}})
    require_effect(name.empty() || external, fmt::format("{} = {}", key, name),
                   paths.val + " holds shards, which say this themselves");
  const bool chunked = !training.storage().contiguous ||
                       (validation != nullptr && !validation->storage().contiguous);
  require_effect(given.cache_mb == usual.cache_mb || chunked,
                 fmt::format("data.cache-mb = {}", given.cache_mb),
                 paths.train + " is contiguous: nothing is decoded in chunks");
  require_effect(given.read != config::ReadBy::mmap || training.storage().contiguous,
                 "data.read = mmap", paths.train + " is not contiguous");
}

void refuse_idle_geometry(const config::Config& config, const DataSets& paths,
                          const data::DataSet& training) {
  const config::Config::Data given = config.data, usual;
  const bool boxes = training_augment(config, training.info()).crop == data::Crop::random_resized;
  const bool jpeg = training.info().encoding == data::Encoding::jpeg;
  const std::string why =
      given.crop == config::CropChoice::automatic
          ? fmt::format("data.crop is 'auto', which is '{}' for the {} in {}",
                        boxes ? "random-resized" : "random", jpeg ? "JPEGs" : "pixels", paths.train)
          : fmt::format("data.crop is '{}'", choice_name(given.crop));
  require_effect(given.min_area == usual.min_area || boxes,
                 fmt::format("data.min-area = {}", given.min_area), why);
}

void refuse_idle_colours(const config::Config& config, const DataSets& paths,
                         const data::DataSet& training) {
  if (training.info().channels != 1) return;
  for (const auto& [key, strength] : {std::pair{"data.saturation", config.data.saturation},
                                      std::pair{"data.hue", config.data.hue}})
    require_effect(strength == 0, fmt::format("{} = {}", key, strength),
                   paths.train + " has grey images");
}

std::vector<bool> classes_with_rows(const data::DataSet& rows) {
  std::vector<bool> there(rows.info().classes.size());
  if (rows.info().task == data::Task::classes) {
    for (const std::int32_t label : rows.labels()) there[static_cast<std::size_t>(label)] = true;
    return there;
  }
  for (std::size_t k = 0; k < there.size(); ++k)
    for (std::size_t row = 0; row < rows.info().rows && !there[k]; ++row) {
      const float wanted = rows.wanted(row, k);
      there[k] = rows.info().task == data::Task::labels ? wanted == 1 : !std::isnan(wanted);
    }
  return there;
}

/// "pressure (101325), ...": values that are the same in all rows.
std::string constant_values(const data::DataSet& training) {
  const data::DataSetInfo& info = training.info();
  std::vector<std::string> names;
  for (std::size_t k = 0; info.task == data::Task::values && k < info.classes.size(); ++k) {
    std::optional<float> known;
    bool differs = false;
    for (std::size_t row = 0; row < info.rows && !differs; ++row) {
      const float value = training.wanted(row, k);
      if (std::isnan(value)) continue;
      differs = known.value_or(value) != value;
      known = value;
    }
    if (known && !differs) names.push_back(fmt::format("{} ({})", info.classes[k], *known));
  }
  return join(names, ", ");
}

void add_doubts_of_rates(const config::Config::Optim& given, std::vector<std::string>& doubts) {
  using lockstep::optim::Rule;
  const config::Config::Optim usual;
  if (given.lr == 0) doubts.push_back("optim.lr = 0: no weight will change");
  const bool other_rule = given.rule == Rule::lamb || given.rule == Rule::lars;
  if (other_rule && given.lr == usual.lr)
    doubts.push_back(
        fmt::format("optim.lr = {} is SGD's default, and optim.rule = {} needs about {}", given.lr,
                    choice_name(given.rule), given.rule == Rule::lamb ? "0.005" : "5 to 30"));
  if (given.warmup_start > given.lr)
    doubts.push_back(
        fmt::format("optim.warmup-start = {} is above optim.lr = {}: the warm-up "
                    "lowers the learning rate",
                    given.warmup_start, given.lr));
}

/// Those that are given: "comm.wire = bf16, comm.bucket-mb = 4".
std::string keys_between_ranks(const config::Config& config) {
  std::vector<std::string> given;
  for (const config::ConfigKey* key : config::changed_keys(config))
    if (key->between_ranks) given.push_back(fmt::format("{} = {}", key->name, key->get(config)));
  return join(given, ", ");
}

}  // namespace

void refuse_idle_data_keys(const config::Config& config, const DataSets& paths,
                           const data::DataSet& training, const data::DataSet* validation) {
  refuse_idle_reading(config, paths, training, validation);
  refuse_idle_geometry(config, paths, training);
  refuse_idle_colours(config, paths, training);
}

void refuse_idle_loss_keys(const config::Config& config, data::Task task, const std::string& path) {
  const std::string what = fmt::format("{} is trained on {}", path, choice_name(task));
  const config::Config::Optim& given = config.optim;
  require_effect(given.label_smoothing == 0 || task != data::Task::values,
                 fmt::format("optim.label-smoothing = {}", given.label_smoothing), what);
  require_effect(given.huber_delta == 0 || task == data::Task::values,
                 fmt::format("optim.huber-delta = {}", given.huber_delta), what);
  require_effect(given.class_weights.empty() || task == data::Task::classes,
                 "optim.class-weights = " + given.class_weights, what);
  require_effect(given.positive_weights.empty() || task == data::Task::labels,
                 "optim.positive-weights = " + given.positive_weights, what);
  require_effect(config.data.balance == 0 || task == data::Task::classes,
                 fmt::format("data.balance = {}", config.data.balance), what);
}

std::vector<std::string> say_doubts(const config::Config& config, const DataSets& paths,
                                    const data::DataSet& training, int ranks) {
  std::vector<std::string> doubts;
  add_doubts_of_rates(config.optim, doubts);
  if (const std::string idle = keys_between_ranks(config); ranks == 1 && !idle.empty())
    doubts.push_back(idle + ": this is about several ranks, and there is one");
  const config::Config::Data& data = config.data;
  std::error_code none;
  const bool same_images = data.val_images.empty() || data.val_images == data.images;
  if (!paths.val.empty() && same_images && data.held_out == 0 &&
      (paths.val == paths.train || std::filesystem::equivalent(paths.val, paths.train, none)))
    doubts.push_back(
        fmt::format("data.val is the training set, {}: its accuracy says nothing about "
                    "other images",
                    paths.train));
  const data::DataSetInfo& info = training.info();
  const config::Config::Optim usual;
  if (info.task == data::Task::values && config.optim.huber_delta == 0 &&
      config.optim.lr >= usual.lr && config.optim.rule == lockstep::optim::Rule::sgd)
    doubts.push_back(
        fmt::format("optim.lr = {} suits classes: the squared difference of values may diverge; "
                    "0.01 is a usual start, or say --optim.huber-delta 1",
                    config.optim.lr));
  // What is measured of a constant; see ChannelSums.
  if (training.external() && std::ranges::all_of(info.stddev, [](float x) { return x == 1; }))
    doubts.push_back(fmt::format("{}: all looked-at pixels are the same: were the images written?",
                                 paths.train));
  if (const std::string constant = constant_values(training); !constant.empty())
    doubts.push_back(
        fmt::format("{}: values that are the same in all rows: {}", paths.train, constant));
  return doubts;
}

std::string say_unknown_labels(const data::DataSet& training, const data::DataSet& validation) {
  if (training.info().task != data::Task::classes) return {};
  const std::vector<std::string>& classes = training.info().classes;
  const std::vector<bool> there = classes_with_rows(training);
  std::size_t rows = 0, first = 0;
  for (const std::int32_t label : validation.labels())
    if (!there[static_cast<std::size_t>(label)] && rows++ == 0)
      first = static_cast<std::size_t>(label);
  if (rows == 0) return {};
  return fmt::format(
      "{} of validation {} of classes without a training row, such as {}: are labels counted alike "
      "in both sets?",
      counted(rows, "row"), rows == 1 ? "is" : "are", classes[first]);
}

std::string say_empty_classes(const data::DataSet& training) {
  constexpr std::size_t listed = 5;
  const std::vector<std::string>& classes = training.info().classes;
  const std::vector<bool> there = classes_with_rows(training);
  const auto empty = static_cast<std::size_t>(std::count(there.begin(), there.end(), false));
  if (empty == 0) return {};
  std::vector<std::string> names;
  for (std::size_t c = 0; c < classes.size() && names.size() < listed; ++c)
    if (!there[c]) names.push_back(classes[c]);
  return fmt::format("{} of {} {} ha{} no training row: {}{}", empty, classes.size(),
                     choice_name(training.info().task), empty == 1 ? "s" : "ve", join(names, ", "),
                     empty > listed ? ", ..." : "");
}

namespace {

namespace fs = std::filesystem;

bool holds_shards(const fs::path& folder) {
  std::error_code none;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none))
    if (at->path().extension() == ".h5") return true;
  return false;
}

}  // namespace

bool holds_data_set(const fs::path& folder) {
  return holds_shards(folder) || holds_shards(folder / "train") || holds_shards(folder / "val");
}

std::string packed_set(const std::string& path, PackedPart part) {
  if (path.empty() || holds_shards(path)) return path;
  const fs::path inner = fs::path(path) / (part == PackedPart::training ? "train" : "val");
  return holds_shards(inner) ? inner.string() : path;
}

std::string given_set(const std::string& path, PackedPart part) {
  std::string found = packed_set(path, part);
  const bool training = part == PackedPart::training;
  const std::string other =
      packed_set(path, training ? PackedPart::validation : PackedPart::training);
  require(found != path || other == path,
          fmt::format("{}: has {}, but no {}", path, training ? "val/" : "train/",
                      training ? "train/" : "val/ (to validate on the training set, name it)"));
  return found;
}

void require_files(const std::string& path, PackedPart part) {
  std::error_code none;
  for (const std::filesystem::path& file : data::list_shards(given_set(path, part)))
    if (!std::filesystem::exists(file, none)) data::DataSet{file};
}

DataSets find_data_sets(const DataSets& given) {
  DataSets found{.train = given_set(given.train, PackedPart::training),
                 .val = given_set(given.val, PackedPart::validation)};
  if (given.val.empty() && found.train != given.train) {
    const std::string validation = packed_set(given.train, PackedPart::validation);
    if (validation != given.train) found.val = validation;
  }
  return found;
}

}  // namespace lockstep::train
