#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/join.hpp"
#include "lockstep/base/numbers.hpp"
#include "lockstep/train/config.hpp"

namespace lockstep::train {
namespace {

template <class T>
concept Number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

template <class T>
constexpr TomlKind kind_of = TomlKind::list;
template <>
constexpr TomlKind kind_of<std::string> = TomlKind::text;
template <>
constexpr TomlKind kind_of<bool> = TomlKind::boolean;
template <Number T>
constexpr TomlKind kind_of<T> = TomlKind::number;

template <Number T>
void parse(const std::string& text, const std::string& key, T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    require(result.ec == std::errc() && result.ptr == end && std::isfinite(value),
            fmt::format("{}: '{}' is not a number", key, text));
  } else {
    value = parse_count(text, key);
  }
}

void parse(const std::string& text, const std::string& key, bool& value) {
  require(text == "true" || text == "false",
          fmt::format("{}: '{}' is neither true nor false", key, text));
  value = text == "true";
}

void parse(const std::string& text, const std::string&, std::string& value) { value = text; }

void parse(const std::string& text, const std::string& key, std::vector<std::uint64_t>& value) {
  value.clear();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    parse(text.substr(at, comma - at), key, value.emplace_back());
    at = comma + 1;
  }
}

std::string show(const std::string& value) { return value; }
std::string show(const std::vector<std::uint64_t>& value) { return join(value, ","); }
template <class T>
std::string show(const T& value) {
  return fmt::format("{}", value);  // shortest text that reads back to the same value
}

/// A key whose field `access` finds in a (const) Config.
template <class Access>
ConfigKey make_key(std::string name, std::string help, Access access) {
  using Value = std::remove_reference_t<decltype(access(std::declval<Config&>()))>;
  ConfigKey key;
  key.name = name;
  key.kind = kind_of<Value>;
  key.help = std::move(help);
  key.set = [name, access](Config& config, const std::string& text) {
    Value value{};
    parse(text, name, value);
    access(config) = std::move(value);
  };
  key.get = [access](const Config& config) { return show(access(config)); };
  return key;
}

template <class Value>
ConfigKey key(std::string name, Value Config::*field, std::string help) {
  return make_key(
      std::move(name), std::move(help), [field](auto& config) -> auto& { return config.*field; });
}

template <class Section, class Value>
ConfigKey key(std::string name, Section Config::*section, Value Section::*field, std::string help) {
  return make_key(
      std::move(name), std::move(help),
      [ section, field ](auto& config) -> auto& { return config.*section.*field; });
}

/// The key takes only these values.
ConfigKey one_of(ConfigKey key, std::vector<std::string> values) {
  key.help += fmt::format(": {}", join(values, ", "));
  key.set = [set = key.set, name = key.name, values](Config& config, const std::string& text) {
    for (const std::string& value : values)
      if (text == value) return set(config, text);
    throw InputError(
        fmt::format("{}: '{}' is not known; choose {}", name, text, join(values, ", ")));
  };
  return key;
}

/// A number that may be called "auto" where it is 0.
ConfigKey or_auto(ConfigKey key) {
  key.set = [set = key.set](Config& config, const std::string& text) {
    set(config, text == "auto" ? "0" : text);
  };
  return key;
}

ConfigKey for_foreign(ConfigKey key) {
  key.for_foreign = true;
  return key;
}

/// The key does not touch the arithmetic: a resume may change it freely.
ConfigKey bookkeeping(ConfigKey key) {
  key.changes_results = false;
  return key;
}

using C = Config;

std::vector<ConfigKey> top_keys() {
  return {
      key("model", &C::model, "resnet20/32/44/56/110 (CIFAR) or resnet18/34/50/101/152 (ImageNet)"),
      key("epochs", &C::epochs, "epochs to train"),
      key("batch", &C::batch, "global batch: rows of one step over all ranks (0: 128)"),
      key("batch-per-rank", &C::batch_per_rank, "instead of batch: rows of one step on each rank"),
      key("accumulate", &C::accumulate, "micro-batches that each rank's batch is cut into"),
      one_of(key("precision", &C::precision, "arithmetic of the convolutions"),
             {"fp32", "tf32", "bf16", "fp16"}),
      key("deterministic", &C::deterministic,
          "on a GPU: only library routines that give the same bits each time"),
      key("fuse-norms", &C::fuse_norms,
          "in fp16: convolutions take in what they can of the batch norms beside them"),
      key("seed", &C::seed, "of initial weights, shuffling and augmentation"),
      one_of(key("backend", &C::backend, "what computes"), {"auto", "cpu", "cuda"}),
      key("threads", &C::threads, "compute threads of each rank (0: one per core of its share)"),
      bookkeeping(key("out", &C::out,
                      "run directory; {n} becomes the first free number (empty: runs/MODEL-{n})")),
      bookkeeping(key("resume", &C::resume,
                      "'auto': go on from the run directory's newest valid checkpoint, if any; or "
                      "a checkpoint file")),
      bookkeeping(key("stop-after", &C::stop_after,
                      "write a checkpoint and stop when this step is done, as SIGTERM would (0: "
                      "never)")),
  };
}

std::vector<ConfigKey> model_and_data_keys() {
  using M = C::Model;
  using D = C::Data;
  return {
      one_of(key("model-options.shortcut", &C::model_options, &M::shortcut,
                 "how a block's input reaches its sum when the shape changes"),
             {"default", "pad", "conv"}),
      key("model-options.zero-init-residual", &C::model_options, &M::zero_init_residual,
          "the last batch norm of each branch starts with scale 0"),
      key("data.train", &C::data, &D::train,
          "training set: a shard, a folder of shards, or any HDF5 file of images and labels; a "
          "pattern like 'part*.h5' names several"),
      key("data.val", &C::data, &D::val, "validation set (empty: none)"),
      for_foreign(key(
          "data.images", &C::data, &D::images,
          "files that are no shards: name of the data set of images (empty: found by its shape and "
          "name)")),
      for_foreign(key("data.labels", &C::data, &D::labels, "the same of the labels")),
      key("data.val-images", &C::data, &D::val_images,
          "name in the validation set (empty: as data.images)"),
      key("data.val-labels", &C::data, &D::val_labels, "the same of the labels"),
      for_foreign(one_of(key("data.layout", &C::data, &D::layout,
                             "files that are no shards: where the channels stand"),
                         {"auto", "nhwc", "nchw"})),
      for_foreign(
          one_of(key("data.range", &C::data, &D::range,
                     "files that are no shards: what floats go from and to; they become 0 to 255, "
                     "rounded; auto: 0-1 or 0-255, judged by some rows"),
                 {"auto", "0-1", "0-255", "-1-1"})),
      for_foreign(
          key("data.classes", &C::data, &D::classes,
              "files that are no shards: number of classes (0: those named in the file, else the "
              "largest label and one)")),
      bookkeeping(key("data.cache-mb", &C::data, &D::cache_mb,
                      "chunked files: memory of each rank for decoded chunks (10^6 bytes)")),
      one_of(key("data.shuffle", &C::data, &D::shuffle,
                 "order of an epoch: all rows mixed; blocks of rows in random order, the rows of "
                 "some blocks mixed (large pieces are read); or each node keeps its rows and mixes "
                 "them"),
             {"global", "block", "node"}),
      key("data.block", &C::data, &D::block,
          "shuffle = block, node: consecutive rows of a block (0: those of a chunk, or of 4 MB)"),
      key("data.window", &C::data, &D::window, "shuffle = block: so many blocks are mixed"),
      bookkeeping(key("data.readahead", &C::data, &D::readahead,
                      "rows that are asked for ahead of those being read (0: none; chunked files: "
                      "as many as keep the threads busy)")),
      bookkeeping(key("data.stage", &C::data, &D::stage,
                      "folder of each node's own (a local disk, /dev/shm) to which the training "
                      "set is copied while it is first read (empty: none)")),
      bookkeeping(one_of(key("data.read", &C::data, &D::read,
                             "how contiguous rows are read; mmap: from pages that a node's ranks "
                             "share"),
                         {"pread", "mmap"})),
      one_of(key("data.crop", &C::data, &D::crop,
                 "which part of an image is trained on: a window at a random place, or a box of "
                 "random size and shape, resized; auto: the latter for JPEGs"),
             {"auto", "random", "random-resized"}),
      key("data.size", &C::data, &D::size,
          "side of the network's input (0: JPEGs 224, else as the rows are)"),
      key("data.resize", &C::data, &D::resize,
          "shorter side to which images are resized before a random window, and in validation "
          "before the centre, is cut out (0: 256/224 of the input's side, for JPEGs and "
          "random-resized)"),
      key("data.min-area", &C::data, &D::min_area,
          "random-resized: smallest share of an image's area"),
      key("data.pad", &C::data, &D::pad, "random crop from an image padded by so many pixels"),
      key("data.flip", &C::data, &D::flip, "flip horizontally with probability 1/2"),
      key("data.cutout", &C::data, &D::cutout, "side of a random square that is cut out (0: none)"),
      key("data.brightness", &C::data, &D::brightness,
          "colour jitter: levels are multiplied by 1 - x to 1 + x (0: not)"),
      key("data.contrast", &C::data, &D::contrast, "colour jitter, the same for contrast"),
      key("data.saturation", &C::data, &D::saturation, "colour jitter, the same for saturation"),
      key("data.hue", &C::data, &D::hue,
          "colour jitter: the hue is turned by up to this share of the circle, 0 to 0.5"),
      key("data.randaugment", &C::data, &D::randaugment,
          "RandAugment: how many random operations on each image (usual: 2; 0: none)"),
      key("data.randaugment-magnitude", &C::data, &D::randaugment_magnitude,
          "their strength, 0 to 30"),
      key("data.erase", &C::data, &D::erase, "random erasing: probability, 0 to 1"),
      key("data.mixup", &C::data, &D::mixup,
          "mixup: alpha of the Beta distribution of the shares (usual: 0.2; 0: none)"),
      key("data.cutmix", &C::data, &D::cutmix,
          "CutMix: the same (usual: 1); with both, each batch takes one of them"),
      bookkeeping(or_auto(
          key("data.workers", &C::data, &D::workers,
              "threads of each rank that read and augment (0 or auto: as many of the spare cores' "
              "as are measured to help)"))),
      bookkeeping(key("data.slots", &C::data, &D::slots, "batches that are prepared ahead")),
      key("data.keep-last", &C::data, &D::keep_last,
          "train on the last, smaller batch of an epoch instead of dropping it"),
      bookkeeping(one_of(key("data.on-bad-row", &C::data, &D::on_bad_row,
                             "a training row with a wrong checksum, JPEG or size ends the run, or "
                             "another, drawn by seed, epoch and row, takes its place"),
                         {"error", "skip"})),
      bookkeeping(key("data.bad-rows-limit", &C::data, &D::bad_rows_limit,
                      "skip: an epoch with more bad rows than this ends the run")),
  };
}

std::vector<ConfigKey> optim_keys() {
  using O = C::Optim;
  return {
      key("optim.lr", &C::optim, &O::lr, "learning rate at its highest"),
      key("optim.lr-for-batch", &C::optim, &O::lr_for_batch,
          "linear scaling rule: lr is meant for this global batch and is scaled to the real one "
          "(0: as given)"),
      key("optim.momentum", &C::optim, &O::momentum, "of SGD"),
      key("optim.nesterov", &C::optim, &O::nesterov, "Nesterov's momentum"),
      key("optim.weight-decay", &C::optim, &O::weight_decay, "L2, added to the gradient"),
      key("optim.decay-norm-and-bias", &C::optim, &O::decay_norm_and_bias,
          "weight decay on batch norm's scale and shift and on biases, too"),
      key("optim.label-smoothing", &C::optim, &O::label_smoothing,
          "in training, 0 to 1; validation's loss is without it"),
      key("optim.warmup-epochs", &C::optim, &O::warmup_epochs,
          "linear warm-up; fractions are welcome"),
      key("optim.warmup-start", &C::optim, &O::warmup_start, "learning rate that warm-up leaves"),
      one_of(key("optim.decay", &C::optim, &O::decay, "after warm-up"),
             {"constant", "cosine", "step", "polynomial"}),
      key("optim.final-lr", &C::optim, &O::final_lr, "where cosine and polynomial decay end"),
      key("optim.milestones", &C::optim, &O::milestones, "epochs at which step decay multiplies"),
      key("optim.factor", &C::optim, &O::factor, "by which step decay multiplies"),
      key("optim.power", &C::optim, &O::power, "of polynomial decay"),
  };
}

std::vector<ConfigKey> other_keys() {
  return {
      bookkeeping(key("eval.batch", &C::eval, &C::Eval::batch,
                      "rows of a validation batch on each rank (0: a training micro-batch)")),
      key("eval.every-epochs", &C::eval, &C::Eval::every_epochs,
          "validate after every so many epochs, and after the last"),
      bookkeeping(key("checkpoint.every-steps", &C::checkpoint, &C::Checkpoint::every_steps,
                      "write one after every so many steps (0: only at epochs)")),
      bookkeeping(key("checkpoint.every-epochs", &C::checkpoint, &C::Checkpoint::every_epochs,
                      "write one after every so many epochs, and after the last (0: only the "
                      "last)")),
      bookkeeping(key("checkpoint.keep", &C::checkpoint, &C::Checkpoint::keep,
                      "how many of the newest to keep, besides the best")),
      key("comm.bucket-mb", &C::comm, &C::Comm::bucket_mb,
          "gradients are reduced in buckets of this size (10^6 bytes)"),
      bookkeeping(key("comm.deadline-s", &C::comm, &C::Comm::deadline_s,
                      "how long a rank waits for the others before the job ends")),
      bookkeeping(key("comm.share-gpu", &C::comm, &C::Comm::share_gpu,
                      "ranks of a machine may use one GPU together: for tests, and for the parts "
                      "of a MIG device")),
      bookkeeping(key("liveness.timeout-s", &C::liveness, &C::Liveness::timeout_s,
                      "silence after which a rank counts as lost and the job ends")),
      bookkeeping(
          key("walltime.margin-s", &C::walltime, &C::Walltime::margin_s,
              "in a Slurm job: stop with a checkpoint so long before its time limit, beside "
              "the time that a step and a checkpoint were seen to take")),
      bookkeeping(key("audit.every-steps", &C::audit, &C::Audit::every_steps,
                      "compare all ranks' weights after every so many steps (0: never)")),
      bookkeeping(key("binding.require", &C::binding, &C::Binding::require,
                      "a CPU binding that reading back does not confirm is an error")),
      bookkeeping(key("preflight.check", &C::preflight, &C::Preflight::check,
                      "before the start, measure the nodes and the network between them, and name "
                      "those that are slow or differ")),
      bookkeeping(key("preflight.require", &C::preflight, &C::Preflight::require,
                      "the same, and such a node is an error")),
  };
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> all = [] {
    std::vector<ConfigKey> keys = top_keys();
    for (auto part : {model_and_data_keys(), optim_keys(), other_keys()})
      keys.insert(keys.end(), part.begin(), part.end());
    return keys;
  }();
  return all;
}

}  // namespace lockstep::train
