#include "config/key.hpp"
#include "lockstep/nn/resnet.hpp"

namespace lockstep::config {
namespace {

bool may_measure(const C& c) {
  return may_use_gpus(c) || (c.backend != BackendChoice::clock &&
                             c.winograd.mode == backend::Winograd::Mode::automatic);
}

bool is_fp16(const C& c) { return c.precision == backend::Precision::fp16; }
bool computes(const C& c) { return c.backend != BackendChoice::clock; }
bool has_init(const C& c) { return !c.init.empty(); }
bool has_shards(const C& c) { return c.shards > 0; }
bool has_stages(const C& c) { return c.stages > 1; }
bool is_tuned(const C& c) {
  return c.tune == Switch::on ||
         (c.tune == Switch::automatic && may_use_gpus(c) && !c.deterministic);
}

bool is_recompute_auto(const C& c) {
  return c.recompute.mode == backend::Recompute::Mode::automatic;
}

}  // namespace

std::vector<ConfigKey> run_keys() {
  return {
      key("model", &C::model,
          "the network; of 20, 32, 44, 56 and 110 layers for small images (CIFAR), the others for "
          "large ones (ImageNet); --help model-options has what may differ from it")
          .one_of(nn::resnet_models())
          .usual(),
      key("epochs", &C::epochs, "epochs to train").within(1, 1 << 24).usual(),
      key("batch", &C::batch,
          "global batch: rows of one step over all ranks; auto: 128, or by batch-per-rank")
          .within(0, most_batch_rows)
          .or_auto()
          .usual(),
      key("batch-per-rank", &C::batch_per_rank,
          "instead of batch: rows of one step on each rank; auto: by batch")
          .within(0, most_batch_rows)
          .or_auto(),
      key("accumulate", &C::accumulate, "micro-batches that each rank's batch is cut into")
          .within(1, most_batch_rows)
          .of_pace(),
      key("shards", &C::shards,
          "train as that many ranks would, with the same bits on any number of ranks up to it, "
          "which may change at each resume, also in the middle of an epoch; 4 to 8 times the usual "
          "ranks leave little idle when some are lost; without it, results depend on the ranks")
          .within(0, most_shards)
          .of_pace(),
      key("lanes", &C::lanes,
          "with shards, on CPUs: into how many parts a shard is cut for threads, on which the bits "
          "depend; more threads than that are idle; auto: as many as the first start has threads")
          .within(0, most_threads)
          .or_auto()
          .needs("shards", has_shards)
          .of_pace(),
      key("stages", &C::stages,
          "on CPUs: cut the network into that many stages, each on another rank, which pass the "
          "micro-batches of accumulate on; a replica is that many ranks and gives the bits of one "
          "rank that accumulates as many; for networks whose weights are too large for a rank")
          .within(1, most_stages)
          .bookkeeping()
          .between_ranks()
          .of_pace(),
      key("pipeline", &C::pipeline,
          "with stages: gpipe runs all micro-batches forward, then all backward; 1f1b each "
          "backward as soon as it can, and keeps fewer in memory; zb-h1 the same, with weight "
          "gradients apart, made where a stage would wait: less is idle, and late stages keep more "
          "in memory; the bits are the same")
          .needs("stages", has_stages)
          .bookkeeping()
          .between_ranks()
          .of_pace(),
      key("tiles", &C::tiles,
          "on CPUs: cut the lines of each image into that many parts, each on another rank, which "
          "exchange the lines at their borders; a replica is that many ranks, and each has its "
          "part of the memory; for large images")
          .within(1, most_tiles)
          .between_ranks()
          .of_pace(),
      key("precision", &C::precision, "arithmetic of the convolutions").usual(),
      key("deterministic", &C::deterministic,
          "use only library routines that give the same bits each time, and choose no algorithm by "
          "measuring")
          .needs("backend", may_measure, "the CPU's routines give the same bits each time")
          .of_pace(),
      key("fuse-norms", &C::fuse_norms,
          "in fp16: fuse batch norms into the convolutions before and after them where possible; "
          "auto: on a GPU, unless deterministic")
          .needs("precision", is_fp16, "it has engines for fp16 only")
          .of_pace(),
      key("winograd", &C::winograd,
          "on CPUs, in fp32 and, without AMX, bf16: 3x3 convolutions by Winograd's algorithm; "
          "true: all; false: none; auto: those that it makes faster, which is measured once "
          "(deterministic: all); or their list, as auto saves it with the run")
          .of_pace(),
      key("graph", &C::graph,
          "on a GPU: record the work of a step once, as a CUDA graph, and then repeat it with one "
          "call; the bits are the same; auto: on a GPU, where all steps are alike")
          .needs("backend", may_use_gpus, "only a GPU records steps")
          .bookkeeping()
          .of_pace(),
      key("tune", &C::tune,
          "on a GPU: measure the engines of each convolution and take the fastest; the first start "
          "on a kind of GPU takes longer; auto: unless deterministic")
          .needs("backend", may_use_gpus, "only a GPU's convolutions have engines to choose from")
          .of_pace(),
      key("tune-cache", &C::tune_cache,
          "tune: the file that keeps what was measured, by device, library and shape")
          .if_empty("runs/plans.txt")
          .needs("tune", is_tuned,
                 "the file keeps what it measures, on a GPU and not with deterministic")
          .bookkeeping(),
      key("recompute", &C::recompute,
          "which values backward makes again instead of keeping them: none; N: those inside N "
          "segments of the network; auto: as few as memory-limit allows")
          .bookkeeping()
          .of_pace(),
      key("memory-limit", &C::memory_limit,
          "recompute = auto: the most memory that a rank's process may take: 4GB, 500MiB, or bytes")
          .at_least(0)
          .size()
          .needs("recompute", is_recompute_auto, "'auto' keeps the limit")
          .bookkeeping(),
      key("seed", &C::seed, "of initial weights, shuffling and augmentation").at_least(0).usual(),
      key("init", &C::init,
          "file whose weights training begins with: a checkpoint, .safetensors, .pth, .npz or "
          ".onnx, or the folder of a run: its best.h5, or its newest")
          .if_empty("random weights")
          .names_input()
          .usual(),
      key("head", &C::head,
          "the last layer of such a file: keep it, or begin with a new one; auto: a new one where "
          "the data set has other classes")
          .needs("init", has_init)
          .usual(),
      key("init-channels", &C::init_channels,
          "what the first convolution does with the channels of such a file: repeat (in their "
          "order, for as many as the images have), new (random), or for each channel of the images "
          "one of the file's, from 0, or - for the mean of all (2,1,0,-); times file's / images'")
          .if_empty("as they are, which must be as many")
          .needs("init", has_init),
      key("freeze", &C::freeze,
          "keep the weights and running statistics of the layers up to this one, which then need "
          "no gradient, momentum and reduction; backbone: of all but the last layer")
          .needs("backend", computes, "a rehearsal's times are those of the whole network")
          .of_pace()
          .usual(),
      key("backend", &C::backend,
          "where to compute; clock: nowhere, a rehearsal that waits and trains nothing")
          .bookkeeping()
          .usual(),
      key("threads", &C::threads,
          "compute threads of each rank; auto: one for each core of its share")
          .within(0, most_threads)
          .or_auto()
          .of_a_node()
          .usual(),
      key("out", &C::out, "run directory; {n} becomes the first free number")
          .if_empty("runs/MODEL-{n}")
          .bookkeeping()
          .usual(),
      key("resume", &C::resume,
          "auto: resume from the run directory's newest valid checkpoint, if any; or a "
          "checkpoint file")
          .bookkeeping()
          .of_a_run()
          .usual(),
      key("stop-after", &C::stop_after,
          "write a checkpoint and stop after this step, as on Ctrl-C or SIGTERM")
          .at_least(0)
          .bookkeeping()
          .of_a_run(),
      key("stop-after-epoch", &C::stop_after_epoch,
          "the same after this epoch and its validation; the schedule stays that of all epochs")
          .at_least(0)
          .bookkeeping()
          .of_a_run(),
      key("notify", &C::notify,
          "command of the shell that rank 0 runs once when training ends, for 10 s at most; $1 and "
          "$LOCKSTEP_STATUS are finished, stopped, diverged or failed, $2 and $LOCKSTEP_RUN the "
          "run's folder, once it has one, $3 and $LOCKSTEP_REASON why; for a page: "
          "'lockstep report \"$2\" -o page.html'; of its output 64 kB are passed on")
          .bookkeeping()
          .of_a_run(),
      key("trace", &C::trace,
          "FIRST:LAST: write a timeline of these steps on all ranks into the run's folder trace/")
          .bookkeeping()
          .of_a_run(),
  };
}

std::vector<ConfigKey> checkpoint_keys() {
  using Section = C::Checkpoint;
  return {
      key("checkpoint.every-steps", &C::checkpoint, &Section::every_steps,
          "write one every N steps")
          .at_least(0)
          .bookkeeping(),
      key("checkpoint.every-epochs", &C::checkpoint, &Section::every_epochs,
          "write one every N epochs, and after the last")
          .at_least(0)
          .bookkeeping()
          .usual(),
      key("checkpoint.every-minutes", &C::checkpoint, &Section::every_minutes,
          "write one after the step at which the newest is this old")
          .within(0, 1e6)
          .bookkeeping(),
      key("checkpoint.keep", &C::checkpoint, &Section::keep,
          "how many of the newest to keep (step-STEP.h5), besides the best (best.h5) and the "
          "earlier bests that those count as theirs (best-STEP.h5)")
          .at_least(1)
          .bookkeeping(),
      key("checkpoint.background", &C::checkpoint, &Section::background,
          "steps continue while one is written, and one that becomes due meanwhile comes later; "
          "false: they wait")
          .bookkeeping(),
  };
}

std::vector<ConfigKey> metrics_keys() {
  return {
      key("metrics.tensorboard", &C::metrics, &C::Metrics::tensorboard,
          "write curves and the configuration for TensorBoard into the run's folder tensorboard/")
          .bookkeeping()
          .of_a_run(),
      key("metrics.textfile", &C::metrics, &C::Metrics::textfile,
          "write the run's state for Prometheus into this file, NAME.prom in the folder of "
          "node_exporter's textfile collector on rank 0's node")
          .bookkeeping()
          .of_a_run(),
      key("metrics.listen", &C::metrics, &C::Metrics::listen,
          "show the same at http://HOST:PORT/metrics on rank 0's node: PORT (on 127.0.0.1) or "
          "HOST:PORT, where anybody who reaches it may read")
          .bookkeeping()
          .of_a_run(),
  };
}

std::vector<ConfigKey> watch_keys() {
  return {
      key("liveness.timeout-s", &C::liveness, &C::Liveness::timeout_s,
          "a rank that is silent for this long counts as lost, and the job ends")
          .within(2, 1e6)
          .bookkeeping()
          .between_ranks(),
      key("walltime.margin-s", &C::walltime, &C::Walltime::margin_s,
          "in a Slurm job: stop with a checkpoint this long before its time limit, in addition to "
          "the measured time of a step and a checkpoint; a limit that is made longer later is not "
          "seen")
          .within(0, 1e6)
          .bookkeeping(),
      key("audit.every-steps", &C::audit, &C::Audit::every_steps,
          "compare all ranks' weights every N steps")
          .at_least(0)
          .bookkeeping()
          .between_ranks(),
      key("binding.require", &C::binding, &C::Binding::require,
          "a CPU binding that is not confirmed when read back is an error")
          .bookkeeping()
          .other_name("require-binding"),
      key("preflight.check", &C::preflight, &C::Preflight::check,
          "before the start, measure the nodes and the network between them, and name nodes that "
          "are slow or different")
          .bookkeeping()
          .other_name("preflight"),
      key("preflight.require", &C::preflight, &C::Preflight::require,
          "the same, and such a node is an error")
          .bookkeeping()
          .other_name("require-preflight"),
  };
}

std::vector<ConfigKey> cost_keys() {
  return {
      key("cost.per-core-hour", &C::cost, &C::Cost::per_core_hour,
          "price of a physical core for an hour, in any currency: the run's ledger has its cost")
          .at_least(0)
          .bookkeeping(),
      key("cost.per-gpu-hour", &C::cost, &C::Cost::per_gpu_hour, "the same of a GPU")
          .at_least(0)
          .bookkeeping(),
  };
}

namespace {

bool is_clock(const C& c) { return c.backend == BackendChoice::clock; }
bool has_profile(const C& c) { return !c.clock.profile.empty(); }

}  // namespace

std::vector<ConfigKey> clock_keys() {
  using Section = C::Clock;
  return {
      key("clock.row-ms", &C::clock, &Section::row_ms,
          "backend = clock: a step of b rows takes row-ms * b + step-ms")
          .within(0, 1e6)
          .needs("backend", is_clock)
          .bookkeeping(),
      key("clock.step-ms", &C::clock, &Section::step_ms, "the part of it that rows do not change")
          .within(0, 1e9)
          .needs("backend", is_clock)
          .bookkeeping(),
      key("clock.profile", &C::clock, &Section::profile,
          "instead: a tape that 'bench train --layers --json FILE' measured, or a GPU's profile "
          "(jobs/gpus)")
          .needs("backend", is_clock)
          .bookkeeping()
          .names_input(),
      key("clock.efficiency", &C::clock, &Section::efficiency,
          "share of its stated rates that the profile's GPU reaches")
          .within(0.001, 1)
          .needs("clock.profile", has_profile)
          .bookkeeping(),
  };
}

std::vector<ConfigKey> eval_keys() {
  using Section = C::Eval;
  return {
      key("eval.batch", &C::eval, &Section::batch,
          "validation: rows that a rank computes at once; auto: as in a training micro-batch")
          .within(0, most_batch_rows)
          .or_auto()
          .needs("data.val", validates, "nothing is validated")
          .bookkeeping(),
      key("eval.best", &C::eval, &Section::best,
          "score of a validation that chooses best.h5: of classes top-1, top-5, balanced-accuracy, "
          "macro-F1, AUC or loss; of labels mAP, AUC, micro-F1, macro-F1, samples-F1, exact-match "
          "or "
          "loss; of values RMSE, MAE, R2 or loss")
          .if_empty("top-1, mAP or RMSE")
          .needs("data.val", validates, "nothing is validated"),
      key("eval.every-epochs", &C::eval, &Section::every_epochs,
          "validate every N epochs, and after the last")
          .at_least(1)
          .needs("data.val", validates, "nothing is validated"),
  };
}

namespace {

bool trains_norms(const C& c) { return c.freeze != nn::Freeze::backbone; }

}  // namespace

std::vector<ConfigKey> model_keys() {
  using Section = C::Model;
  return {
      key("model-options.stem", &C::model_options, &Section::stem,
          "the layers before the first block; small: a convolution of 3 x 3 with stride 1, for "
          "images of 32 to 64 pixels; large: one of 7 x 7 with stride 2, and max pooling; deep: "
          "three of 3 x 3 instead of the one of 7 x 7"),
      key("model-options.block", &C::model_options, &Section::block,
          "what a block's branch has: two convolutions of 3 x 3, or one between two of 1 x 1"),
      key("model-options.blocks", &C::model_options, &Section::blocks,
          "how many blocks each stage has, such as 3,4,6,3: 1 to 6 stages; each doubles the width")
          .if_empty("as in the model"),
      key("model-options.width", &C::model_options, &Section::width,
          "channels of the first stage, a multiple of 16; auto: as in the model")
          .within(0, 4096)
          .or_auto(),
      key("model-options.bottleneck-width", &C::model_options, &Section::bottleneck_width,
          "channels between the 1 x 1 of the first stage's bottlenecks, a multiple of 16; auto: as "
          "in the model, in proportion to the width")
          .within(0, 4096)
          .or_auto(),
      key("model-options.groups", &C::model_options, &Section::groups,
          "groups that the bottlenecks' 3 x 3 is cut into, which divide the width inside; auto: as "
          "in the model")
          .within(0, 4096)
          .or_auto(),
      key("model-options.shortcut", &C::model_options, &Section::shortcut,
          "how a block's input is added to its output when the shape changes; pad: every second "
          "pixel and zeros; conv: a convolution of 1 x 1; average: that of means of 2 x 2 pixels "
          "(ResNet-D has it, and the deep stem)"),
      key("model-options.zero-init-residual", &C::model_options, &Section::zero_init_residual,
          "the last batch norm of each branch starts with scale 0"),
      key("model-options.norm-ranks", &C::model_options, &Section::norm_ranks,
          "groups of this many consecutive ranks normalise with the statistics of all of "
          "their rows (synchronised batch norm); 1: each rank with its own")
          .within(1, 1 << 20)
          .needs("freeze", trains_norms, "no batch norm trains")
          .between_ranks(),
  };
}

}  // namespace lockstep::config
