#include "train/files/resume.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lockstep/backend/pace.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/agreement.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/data/loading/sampler.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/model/formats/formats.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/train/scores.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::train {
namespace {

std::filesystem::path look_for_checkpoint(const config::Config& config,
                                          const RunDirectory& directory, std::uint64_t before) {
  if (config.resume != "auto") return config.resume;
  const model::CheckpointDirectory checkpoints(directory.checkpoints(), config.checkpoint.keep);
  return checkpoints.newest_valid(before).value_or("");
}

/// Why the parts of the exchange's state cannot be used; empty where all are whole. Each rank reads
/// its share of them, mostly that which it will load. Collective.
std::string find_torn_part(const std::filesystem::path& path, comm::Control& control) {
  try {
    comm::together(control, "checking the checkpoint", [&] {
      model::verify_exchange_parts(path, static_cast<std::size_t>(control.rank()),
                                   static_cast<std::size_t>(control.world()));
    });
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

bool in_directory(const std::filesystem::path& file, const std::filesystem::path& directory) {
  std::error_code none;
  return std::filesystem::equivalent(file.parent_path().empty() ? "." : file.parent_path(),
                                     directory, none);
}

/// A configuration without a word about all-reduces, Winograd's algorithm, engines, fused batch
/// norms, elements or tasks means flat ones, direct convolutions, neither of the next two, uint8
/// and classes: older checkpoints have none.
config::Config settled(config::Config config) {
  using enum config::AllReduceChoice;
  if (config.comm.all_reduce == automatic) config.comm.all_reduce = flat;
  if (!config.winograd.decided()) config.winograd = {};
  if (config.data.element == config::ElementChoice::automatic)
    config.data.element = config::ElementChoice::u8;
  if (config.data.task == config::TaskChoice::automatic)
    config.data.task = config::TaskChoice::classes;
  for (config::Switch* key : {&config.tune, &config.fuse_norms})
    if (*key == config::Switch::automatic) *key = config::Switch::off;
  return config;
}

/// The momentum of one rule means nothing to another.
void require_same_rule(const ResumePoint& point, const config::Config::Optim& before,
                       const config::Config::Optim& now) {
  const auto same = [&](std::string_view key, std::string_view then, std::string_view today) {
    require(then == today,
            fmt::format("{}: its run had {} = {}, this one has {}, to which its momentum means "
                        "nothing: keep it, or begin another run with --init {}",
                        point.checkpoint.string(), key, then, today, point.checkpoint.string()));
  };
  same("optim.rule", choice_name(before.rule), choice_name(now.rule));
  same("optim.lars-momentum", choice_name(before.lars_momentum), choice_name(now.lars_momentum));
}

/// The rest of an epoch must be the rows that were not seen before.
void require_same_rows(const ResumePoint& point, const config::Config& before,
                       const config::Config& now, const ResumeConditions& conditions) {
  const model::CheckpointHeader& header = point.header;
  const auto same = [&](std::string_view what, auto then, auto today) {
    require(then == today,
            fmt::format("{} was written in the middle of an epoch with {} = {}; now it is {}, "
                        "and that place would mean other rows. Keep it, or resume from a "
                        "checkpoint of an epoch's end",
                        point.checkpoint.string(), what, then, today));
  };
  same("batch", before.batch, now.batch);
  same("seed", before.seed, now.seed);
  same("data.keep-last", before.data.keep_last, now.data.keep_last);
  same("data.balance", before.data.balance, now.data.balance);
  same("rows of the training set", header.input.rows, std::uint64_t{conditions.data.rows});
  const std::string shuffle = choice_name(now.data.shuffle);
  same("data.shuffle", std::string(choice_name(before.data.shuffle)), shuffle);
  if (now.data.shuffle == data::Shuffle::global) return;
  // The order depends on the number of ranks, and by node also on where they are.
  same("data.block", before.data.block, now.data.block);
  same("data.window", before.data.window, now.data.window);
  const auto sharers = [](const config::Config& config, std::size_t replicas) {
    return counted(config::sharers(config, static_cast<int>(replicas)),
                   config.shards > 0 ? "shard" : "rank");
  };
  same(fmt::format("data.shuffle = {} and a batch for", shuffle), sharers(before, header.replicas),
       sharers(now, static_cast<std::size_t>(conditions.replicas)));
  if (now.data.shuffle == data::Shuffle::node && !header.placement.empty())
    same(fmt::format("data.shuffle = {} and the ranks of each node", shuffle),
         "'" + header.placement + "'", "'" + conditions.placement + "'");
}

/// Rows that were trained on must not be validated on.
void require_same_held_out(const ResumePoint& point, const config::Config& before,
                           const config::Config& now) {
  const auto said = [](const config::Config& config) {
    return config.data.held_out == 0
               ? std::string("none")
               : fmt::format("{:g} by seed {}", config.data.held_out, config.seed);
  };
  require(said(before) == said(now),
          fmt::format("data.held-out: {}'s run held out {}, this one {}, which would validate on "
                      "rows that were trained on: keep it and the seed, or begin another run",
                      point.checkpoint.string(), said(before), said(now)));
}

/// Another score's best validation says nothing about this one's.
void require_same_score(const ResumePoint& point, const config::Config& now,
                        const ResumeConditions& conditions) {
  const std::string kept = kept_name(score_kind(conditions.data.task, now.eval.best));
  const auto shown = [](const std::string& name) { return name.empty() ? "top-1" : name; };
  const std::string& then = point.header.progress.score;
  require(point.header.progress.best_epoch == 0 || kept == then,
          fmt::format("{}: its run chose the best validation by {}, this one by eval.best = {}: "
                      "keep it, or begin another run",
                      point.checkpoint.string(), shown(then), shown(kept)));
}

/// What only a run's beginning reads is of no use to a resume, and would be recorded as if it were.
void require_same_beginning(const ResumePoint& point, const config::Config& before,
                            const config::Config& now) {
  for (const char* name : {"init", "head", "model-options.zero-init-residual"}) {
    const config::ConfigKey& key = *config::find_key(name);
    const std::string then = key.get(before), today = key.get(now);
    require(then == today,
            fmt::format("{} = '{}' would have no effect on a resume: the weights are those of {}, "
                        "whose run began with {} = '{}'; keep it, or begin another run",
                        name, today, point.checkpoint.string(), name, then));
  }
}

/// Of an epoch of that many rows.
std::uint64_t steps_of_epoch(std::uint64_t rows, const config::Config& config) {
  data::SamplerSpec order{.rows = rows, .global_batch = config.batch};
  order.keep_last = config.data.keep_last;
  return data::Sampler(order).batches();
}

/// Why ranks on other nodes give other bits; empty where they do not. A file without a placement is
/// by another build, which is named anyway.
std::string changed_placement(const model::CheckpointHeader& header, const config::Config& before,
                              const config::Config& now, const ResumeConditions& conditions) {
  using enum config::AllReduceChoice;
  const bool counts = conditions.on_gpus || before.comm.all_reduce == two_level ||
                      now.comm.all_reduce == two_level || now.data.shuffle == data::Shuffle::node ||
                      has_groups_by_node(before) || has_groups_by_node(now);
  if (!counts || header.placement.empty() || header.placement == conditions.placement ||
      header.world != static_cast<std::uint64_t>(conditions.world))
    return "";
  constexpr std::size_t longest = 60;
  if (std::max(header.placement.size(), conditions.placement.size()) > longest)
    return "the ranks of each node";
  return fmt::format("the ranks of each node ({}, now {})", header.placement, conditions.placement);
}

/// What a data set says of its numbers, where it is no longer the same.
std::vector<std::string> changed_numbers(const data::DataSetInfo& before,
                                         const data::DataSetInfo& now) {
  std::vector<std::string> changes;
  const auto numbers = [&](const char* what, const auto& then, const auto& today) {
    if (then != today)
      changes.push_back(fmt::format("{} of the training set ([{}], now [{}])", what,
                                    join(then, ", "), join(today, ", ")));
  };
  numbers("mean", before.mean, now.mean);
  numbers("deviation", before.stddev, now.stddev);
  numbers("mean of the values", before.target_mean, now.target_mean);
  numbers("deviation of the values", before.target_stddev, now.target_stddev);
  return changes;
}

void require_later_stop(const ResumePoint& point, const config::Config& now) {
  const auto require_later = [&](const char* key, std::uint64_t stop, const char* what,
                                 std::uint64_t done) {
    require(stop == 0 || stop > done,
            fmt::format("{} = {}, but {} resumes after {} {}: name a later {}", key, stop,
                        point.checkpoint.string(), what, done, what));
  };
  const model::Progress& done = point.header.progress;
  require_later("stop-after", now.stop_after, "step", done.step);
  require_later("stop-after-epoch", now.stop_after_epoch, "epoch", done.epoch);
}

}  // namespace

config::Config written_config(const ResumePoint& point) {
  return settled(config::config_in(point.header.config, point.checkpoint.string()));
}

std::optional<ResumePoint> find_resume_point(const config::Config& config,
                                             const RunDirectory& directory,
                                             comm::Control& control) {
  if (config.resume.empty()) return std::nullopt;
  for (std::uint64_t before = ~0ULL;;) {
    std::string path;
    if (control.rank() == 0) path = look_for_checkpoint(config, directory, before).string();
    path = control.broadcast(path, "choosing the checkpoint");
    if (path.empty()) return std::nullopt;
    ResumePoint found{path, {}, in_directory(path, directory.checkpoints()), {}};
    comm::together(control, "reading the checkpoint", [&] {
      found.verified = stamp_of(found.checkpoint);
      found.header = model::read_header(found.checkpoint);
    });
    const std::string torn = find_torn_part(path, control);
    if (torn.empty()) return found;
    require(config.resume == "auto", torn);
    if (control.rank() == 0) log::warn(fmt::format("{}; looking for an earlier one", torn));
    before = found.header.progress.step;
  }
}

std::vector<std::string> judge_resume(const ResumePoint& point, const config::Config& now,
                                      const ResumeConditions& conditions) {
  const model::CheckpointHeader& header = point.header;
  require(!header.config.empty(),
          fmt::format("{}: its configuration was removed, so no run can resume from it",
                      point.checkpoint.string()));
  require(backend::is_rehearsal(header.backend) == backend::is_rehearsal(conditions.backend),
          fmt::format("{}: {}: only a run of the same kind can resume from it",
                      point.checkpoint.string(),
                      backend::is_rehearsal(header.backend)
                          ? "a rehearsal wrote it (--backend clock)"
                          : "a training wrote it, and --backend clock is a rehearsal"));
  const config::Config before = written_config(point);

  require(before.freeze == now.freeze,
          fmt::format("{}: its run had freeze = {}, this one has {}: keep it, or begin another run "
                      "with --init {}",
                      point.checkpoint.string(), choice_name(before.freeze),
                      choice_name(now.freeze), point.checkpoint.string()));
  require_same_rule(point, before.optim, now.optim);
  require_same_held_out(point, before, now);
  require_same_beginning(point, before, now);
  infer::require_alike(header.input, point.checkpoint.string(), conditions.data, now.data.train);
  require_same_score(point, now, conditions);
  require_later_stop(point, now);
  if (header.progress.batch != 0) require_same_rows(point, before, now, conditions);

  // Neither ranks nor threads, sums over two levels or buckets change what shards add up to.
  const bool both_shards = now.shards > 0 && before.shards > 0;
  const auto what_counts = [&](config::Config config) {
    config = settled(std::move(config));
    if (!both_shards) return config;
    config.threads = 0;
    config.comm.all_reduce = config::AllReduceChoice::flat;
    config.comm.bucket_mb = 0;
    return config;
  };
  std::vector<std::string> changes = config::differences(what_counts(before), what_counts(now));
  const auto bits_of = [&](const std::string& backend) {
    return both_shards ? backend::without_threads(backend) : backend;
  };
  if (bits_of(header.backend) != bits_of(conditions.backend))
    changes.push_back(fmt::format("backend ({}, now {})", header.backend, conditions.backend));
  if (header.build != conditions.build)
    changes.push_back(fmt::format("build ({}, now {})", header.build, conditions.build));
  if (!both_shards && header.replicas != static_cast<std::uint64_t>(conditions.replicas))
    changes.push_back(fmt::format("ranks ({}, now {})", header.world, conditions.world));
  const std::string moved = both_shards ? "" : changed_placement(header, before, now, conditions);
  if (!moved.empty()) changes.push_back(moved);
  if (header.input.rows != conditions.data.rows)
    changes.push_back(fmt::format("rows of the training set ({}, now {})", header.input.rows,
                                  conditions.data.rows));
  else if (header.input.rows_hash != 0 && header.input.rows_hash != conditions.data.rows_hash)
    changes.push_back("the training set, whose labels or images are others, or in another order");
  for (std::string& change : changed_numbers(header.input, conditions.data))
    changes.push_back(std::move(change));
  return changes;
}

std::string say_rate_jump(const ResumePoint& point, const config::Config& now,
                          std::uint64_t steps_per_epoch) {
  constexpr float noticeable = 1e-3f;
  const model::Progress& progress = point.header.progress;
  const config::Config before = written_config(point);
  const auto next_step = [&](std::uint64_t steps) {
    return progress.epoch * steps + progress.batch;
  };
  const std::uint64_t then = steps_of_epoch(point.header.input.rows, before);
  if (next_step(then) == 0) return "";
  const optim::ScheduleSpec schedule = make_schedule(before, then);
  const float last = optim::learning_rate(schedule, next_step(then) - 1),
              expected = optim::learning_rate(schedule, next_step(then)),
              next = optim::learning_rate(make_schedule(now, steps_per_epoch),
                                          next_step(steps_per_epoch));
  if (std::abs(next - expected) <= noticeable * std::max(next, expected)) return "";
  const bool has_end =
      now.optim.decay == optim::Decay::cosine || now.optim.decay == optim::Decay::polynomial;
  const std::string why = has_end && before.epochs != now.epochs
                              ? fmt::format("{} now ends with epoch {}, not {}",
                                            choice_name(now.optim.decay), now.epochs, before.epochs)
                              : fmt::format("without the changes it would be {:.3g}", expected);
  return fmt::format("the learning rate goes from {:.3g} to {:.3g}: {}", last, next, why);
}

}  // namespace lockstep::train
