#include "lockstep/train/run_data.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/loading/row_reader.hpp"
#include "lockstep/data/loading/workers.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/reduce/tree.hpp"
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/scores.hpp"
#include "lockstep/train/specs.hpp"
#include "train/decide/data_checks.hpp"

namespace lockstep::train {
namespace {

/// What one node does about data.stage, as text. Both empty: it was not asked for.
struct NodeCopyNews {
  std::string copied;   ///< what it copies
  std::string refused;  ///< why it copies nothing
};

/// The validation set comes second, complete, and only where it can be copied.
NodeCopyNews copy_to_this_node(data::DataSet& training, const std::vector<data::RowRange>& rows,
                               data::DataSet* validation, const std::string& directory,
                               const std::string& host) {
  if (directory.empty()) return {};
  data::NodeCopy copy = training.copy_to(directory, rows);
  const auto bytes = [](std::uint64_t count) { return human_bytes(static_cast<double>(count)); };
  const char* which = "training";
  if (copy.fits && validation && validation->storage().contiguous) {
    const data::RowRange all{.first = 0, .rows = validation->info().rows};
    const data::NodeCopy second =
        validation->copy_to(directory, {&all, 1}, copy.bytes - copy.there);
    copy.bytes += second.bytes;
    copy.there += second.there;
    copy.fits = second.fits;
    if (!second.fits) {
      copy = second;
      which = "validation";
    }
  }
  if (copy.fits)
    return {.copied = fmt::format(
                "data: each node copies {} to {} on first reading ({} are there already)",
                bytes(copy.bytes), directory, bytes(copy.there)),
            .refused = ""};
  return {.copied = "",
          .refused = fmt::format("data.stage: {} of the {} set do not fit into {} on {}, which has "
                                 "room for {}: they are read in place",
                                 bytes(copy.bytes - copy.there), which, directory, host,
                                 bytes(copy.available))};
}

/// The first text that is not empty.
std::string first_of(const std::vector<std::string>& texts) {
  const auto found = std::find_if(texts.begin(), texts.end(),
                                  [](const std::string& text) { return !text.empty(); });
  return found == texts.end() ? "" : *found;
}

}  // namespace

data::DataSetInfo synthetic_rows(const config::Config& config) {
  const nn::ResNetSpec usual =
      nn::usual_resnet(config.model, config.data.size, config.data.classes);
  data::DataSetInfo rows{.rows = config.batch,
                         .height = usual.height,
                         .width = usual.width,
                         .channels = usual.channels,
                         .classes = {},
                         .mean = std::vector<float>(usual.channels, 0.5f),
                         .stddev = std::vector<float>(usual.channels, 0.25f)};
  for (std::size_t i = 0; i < usual.classes; ++i) rows.classes.push_back(std::to_string(i));
  return rows;
}

data::DataSetInfo trained_rows(const config::Config& config) {
  const DataSets sets = find_data_sets({.train = config.data.train, .val = config.data.val});
  const data::DataSet rows(sets.train, external_spec(config));
  return data::delivered(rows.info(), training_augment(config, rows.info()), sets.train);
}

RunData::RunData(const RunSpec& spec, comm::Control& control, const DataChoices& begun_with)
    : spec_(spec), config_(spec.config), control_(control) {
  if (spec.synthetic)
    input_ = *spec.synthetic;
  else
    open_sets(begun_with);
  choose_order();
  if (training_) choose_weights();
}

DataChoices RunData::choices() const {
  const std::string clip = training_ ? data::limits_text(input_.shaping) : config_.data.clip;
  if (!training_ || !training_->external()) return {config_.data.element, config_.data.task, clip};
  return {*find_choice<config::ElementChoice>(choice_name(input_.element)),
          *find_choice<config::TaskChoice>(choice_name(input_.task)), clip};
}

void RunData::open_sets(const DataChoices& begun_with) {
  sets_ = find_data_sets({.train = config_.data.train, .val = config_.data.val});
  if (config_.data.held_out > 0) {
    require(sets_.val.empty(),
            fmt::format("data.held-out = {} would have no effect: {} is there to validate on",
                        config_.data.held_out, sets_.val));
    sets_.val = sets_.train;
  }
  data::ExternalSpec reading = external_spec(config_);
  if (config_.data.element == config::ElementChoice::automatic)
    reading.element = choice_name(begun_with.element);
  if (config_.data.task == config::TaskChoice::automatic)
    reading.task = find_choice<data::Task>(choice_name(begun_with.task));
  if (!begun_with.clip.empty() && data::asks_percentiles(config_.data.clip))
    reading.clip = begun_with.clip;
  const data::DataSet& rows = training_.emplace(sets_.train, reading);
  require_channels(rows.info(), sets_.train);
  require_same_data(rows, "data.train", control_);
  say_what_is_read(rows, sets_.train);
  if (const std::string said = data::say_shaping(rows.info().shaping);
      control_.rank() == 0 && !said.empty())
    log::info("data: values, before mean and deviation: " + said);
  augment_ = training_augment(config_, rows.info());
  input_ = data::delivered(rows.info(), augment_, sets_.train);
  require_effects_fit();
  score_kind(input_.task, config_.eval.best);
  refuse_idle_loss_keys(config_, input_.task, sets_.train);
  if (!sets_.val.empty()) open_validation();
  refuse_idle_data_keys(config_, sets_, rows, validation());
  // 'lockstep pack' says so about shards.
  const std::string empty = rows.external() ? say_empty_classes(rows) : "";
  if (control_.rank() == 0 && !empty.empty()) log::warn(empty);
  const std::string unknown = validation() ? say_unknown_labels(rows, *validation()) : "";
  if (control_.rank() == 0 && !unknown.empty()) log::warn(unknown);
  if (const std::string order = rows.say_order(); control_.rank() == 0 && !order.empty())
    log::info(order);
  for (const std::string& doubt : say_doubts(config_, sets_, rows, control_.world()))
    if (control_.rank() == 0) log::warn(doubt);
}

void RunData::require_effects_fit() const {
  const std::size_t side = std::min(input_.height, input_.width);
  for (const auto& [key, pixels] :
       {std::pair{"data.pad", config_.data.pad}, std::pair{"data.cutout", config_.data.cutout}})
    require(pixels < side, fmt::format("{} = {} must be smaller than the side of the images: {} "
                                       "has images of {} x {} pixels",
                                       key, pixels, sets_.train, input_.height, input_.width));
}

void RunData::open_validation() {
  validation_.emplace(sets_.val, external_spec(config_, &training().info()));
  require_score(validation_->info(), config_.eval.best, sets_.val);
  require_same_data(*validation_, "data.val", control_);
  say_what_is_read(*validation_, sets_.val);
  infer::require_alike(input_, sets_.train,
                       data::delivered(validation_->info(), validation_augment(), sets_.val),
                       sets_.val);
}

data::AugmentSpec RunData::validation_augment() const {
  return model::evaluation_augment(infer::preparation(config_, input_), input_,
                                   validation_->info());
}

void RunData::choose_order() {
  const int replicas = spec_.grid.replicas.count;
  data::SamplerSpec order =
      training_
          ? training_order(config_, *training_, replicas)
          : data::SamplerSpec{.rows = input_.rows,
                              .global_batch = config_.batch,
                              .replicas = static_cast<int>(config::sharers(config_, replicas))};
  order.replica = spec_.grid.replicas.index;
  if (config_.shards > 0) {
    const reduce::ShardRange own =
        reduce::shards_of(config_.shards, static_cast<std::size_t>(replicas),
                          static_cast<std::size_t>(order.replica));
    order.replica = static_cast<int>(own.first);
    order.taken = static_cast<int>(own.last - own.first);
  }
  if (order.shuffle == data::Shuffle::node)
    for (int replica = 0; replica < order.replicas; ++replica)
      order.nodes.push_back(
          static_cast<int>(spec_.nodes.node_of(spec_.grid.first_rank_of(replica))));
  sampler_.emplace(order);
}

void RunData::choose_weights() {
  const data::ClassBalance* balance = sampler_->spec().balance.get();
  loss_weights_ = train::loss_weights(config_, *training_, balance);
  const std::string said = say_weights(loss_weights_, balance, input_);
  if (control_.rank() == 0 && !said.empty()) log::info(said);
}

/// Nodes may copy to different folders, or not at all.
void RunData::copy_to_nodes() {
  const NodeCopyNews mine =
      copy_to_this_node(*training_, sampler_->rows_of_node(), validation_ ? &*validation_ : nullptr,
                        config_.data.stage, spec_.allocation.host);
  const std::string refused = first_of(control_.gather_at_root(mine.refused, "staging"));
  const std::string copied = first_of(control_.gather_at_root(mine.copied, "staging"));
  if (control_.rank() != 0) return;
  if (!refused.empty()) return log::warn(refused);
  if (!copied.empty()) log::info(copied);
}

void RunData::start_loader(const model::Progress& progress, device::Device& device) {
  if (spec_.grid.stages.index > 0) return;
  if (const auto spec = loading(progress, device)) loader_.emplace(*training_, *spec, device);
}

std::optional<data::LoaderSpec> RunData::loading(const model::Progress& progress,
                                                 const device::Device& device) {
  data::LoaderSpec loading;
  loading.sampler = sampler_->spec();
  loading.augment = augment_;
  loading.mix = training_mix(config_);
  loading.replace_bad_rows = config_.data.on_bad_row == config::OnBadRow::skip;
  // A batch is lent until its step has ended.
  loading.slots = config_.data.slots + device.steps_ahead();
  loading.bind_worker = spec_.bind_worker;
  loading.epoch = progress.epoch;
  loading.batch = progress.batch;
  if (loading.batch >= steps_per_epoch()) {  // only its validation is still due
    ++loading.epoch;
    loading.batch = 0;
  }
  if (loading.epoch >= config_.epochs) return std::nullopt;
  loading.epochs = config_.epochs - loading.epoch;
  loading.readahead = config_.data.readahead;
  if (config_.data.read == config::ReadBy::mmap) training_->map();
  if (config_.data.workers == 0) measure_workers(loading);
  loading.workers = loader_threads();
  return loading;
}

std::size_t RunData::loader_threads() const {
  if (config_.data.workers != 0) return config_.data.workers;
  if (measured_workers_ != 0) return measured_workers_;
  return std::clamp<std::size_t>(spec_.spare_cores, 1, 8);
}

std::size_t RunData::loader_bytes() const {
  if (!training_) return 0;
  return config_.data.slots * sampler_->replica_batch() *
         (input_.row_bytes() + input_.wanted_values() * sizeof(float));
}

void RunData::measure_workers(const data::LoaderSpec& loading) {
  const std::size_t most = std::clamp<std::size_t>(spec_.spare_cores, 1, 64);
  const data::WorkerChoice choice = data::choose_workers(*training_, loading, most);
  measured_workers_ = choice.workers;
  if (control_.rank() == 0 && most > 1)
    log::info(fmt::format("data: {} of at most {}, {:.0f} rows/s per rank (one thread: {:.0f})",
                          counted(choice.workers, "thread"), most, choice.rows_per_s,
                          choice.rows_per_s_of_one));
}

std::uint64_t RunData::rows_until(std::uint64_t epoch, std::uint64_t batch) const {
  const std::uint64_t rows_of_epoch = input_.rows - dropped_rows();
  return epoch * rows_of_epoch + std::min<std::uint64_t>(batch * config_.batch, rows_of_epoch);
}

data::Batch RunData::next(std::uint64_t batch) {
  if (!loader_) {
    data::Batch rows{.rows = sampler_->part(batch).rows, .index = batch};
    rows.capacity = rows.rows;
    return rows;
  }
  const data::Batch part =
      looked_ahead_ ? *std::exchange(looked_ahead_, std::nullopt) : loader_->next();
  check(part.index == batch, "the loader and the trainer are at different batches");
  return part;
}

std::optional<NextBatch> RunData::look_ahead(std::uint64_t batch) {
  if (!loader_ || batch >= steps_per_epoch() || !loader_->ready()) return std::nullopt;
  looked_ahead_ = loader_->next();
  return NextBatch{.batch = *looked_ahead_, .global_rows = global_rows(batch)};
}

std::vector<std::string> RunData::bad_rows(const data::Batch& batch) const {
  std::vector<std::string> rows;
  if (!loader_) return rows;
  for (const data::Replaced& row : loader_->replaced(batch)) rows.push_back(row.what);
  return rows;
}

void RunData::release(const data::Batch& batch) {
  if (loader_) loader_->release(batch);
}

std::vector<std::span<const std::byte>> RunData::loader_memory() const {
  if (loader_) return loader_->memory();
  return {};
}

}  // namespace lockstep::train
