#include "lockstep/config/keys.hpp"

#include "config/key.hpp"

namespace lockstep::config {
namespace {

using C = Config;
using optim::Decay;

// Conditions under which keys have an effect.
bool is_fp16(const C& c) { return c.precision == backend::Precision::fp16; }
bool is_tuned(const C& c) { return c.tune; }
bool is_recompute_auto(const C& c) {
  return c.recompute.mode == backend::Recompute::Mode::automatic;
}
bool may_use_gpus(const C& c) {
  return c.backend != BackendChoice::cpu && c.backend != BackendChoice::clock;
}
bool may_measure(const C& c) {
  return may_use_gpus(c) || (c.backend != BackendChoice::clock &&
                             c.winograd.mode == backend::Winograd::Mode::automatic);
}
bool validates(const C& c) { return !c.data.val.empty(); }
bool has_blocks(const C& c) { return c.data.shuffle != lockstep::data::Shuffle::global; }
bool mixes_blocks(const C& c) { return c.data.shuffle == lockstep::data::Shuffle::block; }
bool has_operations(const C& c) { return c.data.randaugment > 0; }
bool skips_rows(const C& c) { return c.data.on_bad_row == OnBadRow::skip; }
bool decays(const C& c) { return c.optim.weight_decay > 0; }
bool is_clock(const C& c) { return c.backend == BackendChoice::clock; }
bool has_profile(const C& c) { return !c.clock.profile.empty(); }
bool may_cut_boxes(const C& c) { return c.data.crop != CropChoice::random; }
bool has_momentum(const C& c) { return c.optim.momentum > 0; }
bool is_lars(const C& c) { return c.optim.rule == optim::Rule::lars; }
bool warms_up(const C& c) { return c.optim.warmup_epochs > 0; }
bool is_step(const C& c) { return c.optim.decay == Decay::step; }
bool is_polynomial(const C& c) { return c.optim.decay == Decay::polynomial; }
bool has_final_lr(const C& c) { return is_polynomial(c) || c.optim.decay == Decay::cosine; }

std::vector<ConfigKey> top_keys() {
  return {
      key("model", &C::model, "resnet20/32/44/56/110 (CIFAR) or resnet18/34/50/101/152 (ImageNet)"),
      key("epochs", &C::epochs, "epochs to train").within(1, 1 << 24),
      key("batch", &C::batch, "global batch: rows of one step over all ranks (0: 128)")
          .within(0, most_batch_rows),
      key("batch-per-rank", &C::batch_per_rank, "instead of batch: rows of one step on each rank")
          .within(0, most_batch_rows),
      key("accumulate", &C::accumulate, "micro-batches that each rank's batch is cut into")
          .within(1, most_batch_rows),
      key("precision", &C::precision, "arithmetic of the convolutions"),
      key("deterministic", &C::deterministic,
          "use only library routines that give the same bits each time, and choose no algorithm by "
          "measuring")
          .needs("backend", may_measure, "the CPU's routines give the same bits each time"),
      key("fuse-norms", &C::fuse_norms,
          "in fp16: fuse batch norms into the convolutions before and after them where possible")
          .needs("precision", is_fp16, "it has engines for fp16 only"),
      key("winograd", &C::winograd,
          "on CPUs, in fp32 and, without AMX, bf16: 3x3 convolutions by Winograd's algorithm; "
          "true: all; false: none; auto: those that it makes faster, which is measured once "
          "(deterministic: all); or their list, as auto saves it with the run"),
      key("graph", &C::graph,
          "on a GPU: record the work of a step once, as a CUDA graph, and then repeat it with one "
          "call; the bits are the same")
          .bookkeeping(),
      key("tune", &C::tune,
          "on a GPU: measure the engines of each convolution and take the fastest; the first start "
          "on a kind of GPU takes longer"),
      key("tune-cache", &C::tune_cache,
          "tune: the file that keeps what was measured, by device, library and shape (empty: "
          "runs/plans.txt)")
          .needs("tune", is_tuned, "the file keeps what it measures")
          .bookkeeping(),
      key("recompute", &C::recompute,
          "which values backward makes again instead of keeping them: none; N: those inside N "
          "segments of the network; auto: as few as memory-limit allows")
          .bookkeeping(),
      key("memory-limit", &C::memory_limit,
          "recompute = auto: the most bytes of memory that a rank's process may take")
          .needs("recompute", is_recompute_auto, "'auto' keeps the limit")
          .bookkeeping(),
      key("seed", &C::seed, "of initial weights, shuffling and augmentation"),
      key("backend", &C::backend,
          "where to compute; clock: nowhere, a rehearsal that waits and trains nothing"),
      key("threads", &C::threads, "compute threads of each rank (0: one per core of its share)")
          .within(0, most_threads),
      key("out", &C::out,
          "run directory; {n} becomes the first free number (empty: runs/MODEL-{n})")
          .bookkeeping(),
      key("resume", &C::resume,
          "'auto': resume from the run directory's newest valid checkpoint, if any; or a "
          "checkpoint file")
          .bookkeeping(),
      key("stop-after", &C::stop_after,
          "write a checkpoint and stop after this step, as on Ctrl-C or SIGTERM (0: never)")
          .bookkeeping(),
  };
}

std::vector<ConfigKey> model_and_data_keys() {
  using M = C::Model;
  using D = C::Data;
  return {
      key("model-options.shortcut", &C::model_options, &M::shortcut,
          "how a block's input is added to its output when the shape changes"),
      key("model-options.zero-init-residual", &C::model_options, &M::zero_init_residual,
          "the last batch norm of each branch starts with scale 0"),
      key("data.train", &C::data, &D::train,
          "training set: a shard, a folder of shards, or any HDF5 file of images and labels; a "
          "pattern like 'part*.h5' names several"),
      key("data.val", &C::data, &D::val, "validation set (empty: none)"),
      key("data.images", &C::data, &D::images,
          "files that are not shards: name of the data set of images (empty: found by its shape "
          "and name)")
          .for_external(),
      key("data.labels", &C::data, &D::labels, "the same for the labels").for_external(),
      key("data.val-images", &C::data, &D::val_images,
          "name in the validation set (empty: as data.images)")
          .needs("data.val", validates),
      key("data.val-labels", &C::data, &D::val_labels, "the same for the labels")
          .needs("data.val", validates),
      key("data.layout", &C::data, &D::layout,
          "files that are not shards: position of the channels")
          .for_external(),
      key("data.range", &C::data, &D::range,
          "files that are not shards: range of floats; they become 0 to 255, rounded; auto: 0-1 or "
          "0-255, inferred from some rows")
          .for_external(),
      key("data.classes", &C::data, &D::classes,
          "files that are not shards: number of classes (0: those named in the file, else the "
          "largest label + 1)")
          .within(0, 1 << 20)
          .for_external(),
      key("data.cache-mb", &C::data, &D::cache_mb,
          "chunked files: memory of each rank for decoded chunks (10^6 bytes)")
          .within(1, 1 << 20)
          .bookkeeping(),
      key("data.shuffle", &C::data, &D::shuffle,
          "order of an epoch: all rows mixed; blocks of rows in random order, with the rows of "
          "some blocks mixed (reads large pieces); or each node keeps its rows and mixes them"),
      key("data.block", &C::data, &D::block,
          "shuffle = block, node: consecutive rows of a block (0: those of a chunk, or of 4 MB)")
          .within(0, 1 << 30)
          .needs("data.shuffle", has_blocks, "it mixes all rows"),
      key("data.window", &C::data, &D::window,
          "shuffle = block: number of blocks whose rows are mixed")
          .within(1, 1 << 20)
          .needs("data.shuffle", mixes_blocks, "'block' mixes the rows of some blocks"),
      key("data.readahead", &C::data, &D::readahead,
          "rows to request ahead of those being read (0: none; chunked files: enough to keep the "
          "threads busy)")
          .within(0, 1 << 30)
          .bookkeeping(),
      key("data.stage", &C::data, &D::stage,
          "folder on each node (a local disk, /dev/shm) to which the training set is copied while "
          "it is first read (empty: none)")
          .bookkeeping(),
      key("data.read", &C::data, &D::read,
          "how to read contiguous rows; mmap: from pages that a node's ranks share")
          .bookkeeping(),
      key("data.crop", &C::data, &D::crop,
          "the part of an image to train on: a window at a random place, or a box of "
          "random size and shape, resized; auto: the latter for JPEGs"),
      key("data.size", &C::data, &D::size,
          "side of the network's input (0: 224 for JPEGs, else the size of the rows)")
          .within(0, 65535),
      key("data.resize", &C::data, &D::resize,
          "resize images to this shorter side before cutting out a random window or, in "
          "validation, the centre (0: 256/224 of the input's side, for JPEGs and random-resized)")
          .within(0, 65535),
      key("data.min-area", &C::data, &D::min_area,
          "random-resized: smallest share of an image's area")
          .within(0.0001, 1)
          .needs("data.crop", may_cut_boxes, "'random' takes windows of one size"),
      key("data.pad", &C::data, &D::pad, "random crop from an image padded by this many pixels"),
      key("data.flip", &C::data, &D::flip, "flip horizontally with probability 1/2"),
      key("data.cutout", &C::data, &D::cutout, "side of a random square that is cut out (0: none)"),
      key("data.brightness", &C::data, &D::brightness,
          "colour jitter: levels are multiplied by 1 - x to 1 + x (0: off)")
          .within(0, 100),
      key("data.contrast", &C::data, &D::contrast, "colour jitter, the same for contrast")
          .within(0, 100),
      key("data.saturation", &C::data, &D::saturation, "colour jitter, the same for saturation")
          .within(0, 100),
      key("data.hue", &C::data, &D::hue,
          "colour jitter: the hue is turned by up to this share of the circle")
          .within(0, 0.5),
      key("data.randaugment", &C::data, &D::randaugment,
          "RandAugment: number of random operations on each image (usual: 2; 0: none)")
          .within(0, 100),
      key("data.randaugment-magnitude", &C::data, &D::randaugment_magnitude, "their strength")
          .within(0, 30)
          .needs("data.randaugment", has_operations),
      key("data.erase", &C::data, &D::erase, "random erasing: probability").within(0, 1),
      key("data.mixup", &C::data, &D::mixup,
          "mixup: alpha of the Beta distribution of the shares (usual: 0.2; 0: off)")
          .within(0.01, 100)
          .or_zero(),
      key("data.cutmix", &C::data, &D::cutmix,
          "CutMix: the same (usual: 1); with both, each batch gets one of them")
          .within(0.01, 100)
          .or_zero(),
      key("data.workers", &C::data, &D::workers,
          "threads of each rank that read and augment (0 or auto: as many of the spare cores as "
          "help, which is measured)")
          .within(0, most_threads)
          .or_auto()
          .bookkeeping(),
      key("data.slots", &C::data, &D::slots, "batches to prepare ahead")
          .within(1, most_threads)
          .bookkeeping(),
      key("data.keep-last", &C::data, &D::keep_last,
          "train on the last, smaller batch of an epoch instead of dropping it"),
      key("data.on-bad-row", &C::data, &D::on_bad_row,
          "what a training row with a wrong checksum, JPEG or size does: end the run, or let "
          "another row, drawn by seed, epoch and row, take its place")
          .bookkeeping(),
      key("data.bad-rows-limit", &C::data, &D::bad_rows_limit,
          "skip: an epoch with more bad rows than this ends the run")
          .needs("data.on-bad-row", skips_rows, "the first bad row ends the run")
          .bookkeeping(),
  };
}

std::vector<ConfigKey> optim_keys() {
  using O = C::Optim;
  return {
      key("optim.lr", &C::optim, &O::lr, "highest learning rate").within(0, 1e6),
      key("optim.lr-for-batch", &C::optim, &O::lr_for_batch,
          "linear scaling rule: lr is for this global batch and is scaled to the actual one (0: "
          "not scaled)"),
      key("optim.rule", &C::optim, &O::rule,
          "SGD, or LARS for large batches, which adapts the rate of each weight tensor to its norm "
          "and needs an lr of about 5 to 30"),
      key("optim.trust", &C::optim, &O::trust,
          "LARS: a tensor's rate is lr * trust * |w| / (|g| + decay * |w|)")
          .within(0, 1)
          .needs("optim.rule", is_lars, "the trust coefficient belongs to 'lars'"),
      key("optim.momentum", &C::optim, &O::momentum, "of SGD and LARS").within(0, 0.999999),
      key("optim.nesterov", &C::optim, &O::nesterov, "Nesterov's momentum")
          .needs("optim.momentum", has_momentum),
      key("optim.weight-decay", &C::optim, &O::weight_decay, "L2, added to the gradient")
          .within(0, 1),
      key("optim.decay-norm-and-bias", &C::optim, &O::decay_norm_and_bias,
          "weight decay on batch norm's scale and shift and on biases, too")
          .needs("optim.weight-decay", decays),
      key("optim.clip-norm", &C::optim, &O::clip_norm,
          "scale a step's gradients down to this norm of all of them together (0: never)")
          .within(0, 1e6),
      key("optim.ema", &C::optim, &O::ema,
          "keep an exponential moving average of the weights with this decay, validate it too and "
          "choose the best checkpoint by it (0: none)")
          .within(0, 0.999999),
      key("optim.label-smoothing", &C::optim, &O::label_smoothing,
          "in training; the validation loss does not use it")
          .within(0, 0.999999),
      key("optim.warmup-epochs", &C::optim, &O::warmup_epochs, "linear warm-up; may be a fraction")
          .up_to("epochs"),
      key("optim.warmup-start", &C::optim, &O::warmup_start,
          "learning rate at the start of warm-up")
          .within(0, 1e6)
          .needs("optim.warmup-epochs", warms_up),
      key("optim.decay", &C::optim, &O::decay, "after warm-up"),
      key("optim.final-lr", &C::optim, &O::final_lr, "where cosine and polynomial decay end")
          .within(0, 1e6)
          .needs("optim.decay", has_final_lr, "'cosine' and 'polynomial' end at it"),
      key("optim.milestones", &C::optim, &O::milestones, "epochs at which step decay multiplies")
          .needs("optim.decay", is_step, "milestones belong to 'step'"),
      key("optim.factor", &C::optim, &O::factor, "by which step decay multiplies")
          .within(0, 1)
          .needs("optim.decay", is_step, "the factor belongs to 'step'"),
      key("optim.power", &C::optim, &O::power, "of polynomial decay")
          .within(0.01, 100)
          .needs("optim.decay", is_polynomial, "the power belongs to 'polynomial'"),
  };
}

std::vector<ConfigKey> other_keys() {
  return {
      key("eval.batch", &C::eval, &C::Eval::batch,
          "rows of a validation batch on each rank (0: as in a training micro-batch)")
          .within(0, most_batch_rows)
          .needs("data.val", validates, "nothing is validated")
          .bookkeeping(),
      key("eval.every-epochs", &C::eval, &C::Eval::every_epochs,
          "validate every N epochs, and after the last")
          .at_least(1)
          .needs("data.val", validates, "nothing is validated"),
      key("checkpoint.every-steps", &C::checkpoint, &C::Checkpoint::every_steps,
          "write one every N steps (0: never)")
          .bookkeeping(),
      key("checkpoint.every-epochs", &C::checkpoint, &C::Checkpoint::every_epochs,
          "write one every N epochs, and after the last (0: only after the last)")
          .bookkeeping(),
      key("checkpoint.every-minutes", &C::checkpoint, &C::Checkpoint::every_minutes,
          "write one after the step at which the newest is this old (0: never)")
          .within(0, 1e6)
          .bookkeeping(),
      key("checkpoint.keep", &C::checkpoint, &C::Checkpoint::keep,
          "how many of the newest to keep, besides the best")
          .at_least(1)
          .bookkeeping(),
      key("checkpoint.background", &C::checkpoint, &C::Checkpoint::background,
          "steps continue while one is written, and one that becomes due meanwhile comes later; "
          "false: they wait")
          .bookkeeping(),
      key("comm.bucket-mb", &C::comm, &C::Comm::bucket_mb,
          "gradients are reduced in buckets of this size (10^6 bytes; 0 or auto: 1 on one node, 25 "
          "on GPUs, else by what an all-reduce costs, which is measured)")
          .within(0.001, 4096)
          .or_zero()
          .or_auto(),
      key("comm.all-reduce", &C::comm, &C::Comm::all_reduce,
          "on CPUs: sum all ranks alike, or first the ranks of a node, in shared memory; auto: the "
          "latter on several nodes with several ranks"),
      key("comm.deadline-s", &C::comm, &C::Comm::deadline_s,
          "how long a rank waits for the others before the job ends")
          .within(1, 1e6)
          .bookkeeping(),
      key("comm.share-gpu", &C::comm, &C::Comm::share_gpu,
          "several ranks may use one GPU: for tests, and for the parts of a MIG device")
          .needs("backend", may_use_gpus, "no rank uses a GPU")
          .bookkeeping(),
      key("comm.allow-different-builds", &C::comm, &C::Comm::allow_different_builds,
          "ranks may run different builds of this program; the bits may then differ")
          .bookkeeping(),
      key("clock.row-ms", &C::clock, &C::Clock::row_ms,
          "backend = clock: a step of b rows takes row-ms * b + step-ms")
          .within(0, 1e6)
          .needs("backend", is_clock)
          .bookkeeping(),
      key("clock.step-ms", &C::clock, &C::Clock::step_ms, "the part of it that rows do not change")
          .within(0, 1e9)
          .needs("backend", is_clock)
          .bookkeeping(),
      key("clock.profile", &C::clock, &C::Clock::profile,
          "instead: a tape that 'bench train --layers --json FILE' measured, or a GPU's profile "
          "(jobs/gpus)")
          .needs("backend", is_clock)
          .bookkeeping(),
      key("clock.efficiency", &C::clock, &C::Clock::efficiency,
          "share of its stated rates that the profile's GPU reaches")
          .within(0.001, 1)
          .needs("clock.profile", has_profile)
          .bookkeeping(),
      key("liveness.timeout-s", &C::liveness, &C::Liveness::timeout_s,
          "a rank that is silent for this long counts as lost, and the job ends")
          .within(2, 1e6)
          .bookkeeping(),
      key("walltime.margin-s", &C::walltime, &C::Walltime::margin_s,
          "in a Slurm job: stop with a checkpoint this long before its time limit, in addition to "
          "the measured time of a step and a checkpoint")
          .within(0, 1e6)
          .bookkeeping(),
      key("audit.every-steps", &C::audit, &C::Audit::every_steps,
          "compare all ranks' weights every N steps (0: never)")
          .bookkeeping(),
      key("binding.require", &C::binding, &C::Binding::require,
          "a CPU binding that is not confirmed when read back is an error")
          .bookkeeping(),
      key("preflight.check", &C::preflight, &C::Preflight::check,
          "before the start, measure the nodes and the network between them, and name nodes that "
          "are slow or different")
          .bookkeeping(),
      key("preflight.require", &C::preflight, &C::Preflight::require,
          "the same, and such a node is an error")
          .bookkeeping(),
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

const ConfigKey* find_key(std::string_view name) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return &key;
  return nullptr;
}

}  // namespace lockstep::config
