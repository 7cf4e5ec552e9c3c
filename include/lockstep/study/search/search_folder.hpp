#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/study/search/rungs.hpp"
#include "lockstep/study/search/space.hpp"

/// The folder of a search: search.json (the plan), space.toml, train.toml (the base), trials/N.toml
/// (what trial N sets other than the base; anyone may add some), results/TRIAL.RUNG.json, which
/// appear whole and never change, attempts/ (legs that gave no result), runs/ and logs/. Nothing in
/// it is an absolute path, and nothing is written twice: any number of processes, on any machines
/// that share it, need no lock and no server.
namespace lockstep::study {

enum class SearchMode { async, sync };

struct SearchSpec {
  PointSampler sampler = PointSampler::sobol;
  std::uint64_t seed = 1;
  std::size_t trials = 64;                 ///< with the base, which is trial 0
  std::vector<std::uint64_t> epochs = {};  ///< at which rungs end
  std::size_t keep_one_of = 3;
  SearchMode mode = SearchMode::async;
  double node_hours = 0;  ///< of all workers together; 0: no limit
  std::size_t ranks = 1;  ///< of a trial
  std::size_t ranks_per_node = 1, gpus_per_node = 0, cpus_per_rank = 1;

  static void fields(auto& self, auto&& visit) {
    visit("sampler", self.sampler);
    visit("seed", self.seed);
    visit("trials", self.trials);
    visit("epochs", self.epochs);
    visit("keep_one_of", self.keep_one_of);
    visit("mode", self.mode);
    visit("node_hours", self.node_hours);
    visit("ranks", self.ranks);
    visit("ranks_per_node", self.ranks_per_node);
    visit("gpus_per_node", self.gpus_per_node);
    visit("cpus_per_rank", self.cpus_per_rank);
  }
  RungSpec rungs() const { return {epochs, keep_one_of, mode == SearchMode::sync}; }
  /// A trial's part of a node counts as that part.
  double nodes() const { return static_cast<double>(ranks) / static_cast<double>(ranks_per_node); }
};

/// How a leg ended. Only the first three are results.
enum class LegEnd { done, diverged, failed, stopped };

struct LegResult {
  std::size_t trial = 0, rung = 0;
  std::uint64_t epoch = 0;  ///< at which it ended, or was to end
  LegEnd end = LegEnd::done;
  std::string score_name = {};  ///< "top-1"
  bool more_is_better = true;
  double score = 0;         ///< of the epoch's validation; NaN without one
  std::string reason = {};  ///< in words, where it is not done
  double seconds = 0, node_hours = 0;
  std::uint64_t ranks = 0;
  std::vector<std::string> hosts = {}, devices = {};  ///< on which the bits depend

  static void fields(auto& self, auto&& visit) {
    visit("trial", self.trial);
    visit("rung", self.rung);
    visit("epoch", self.epoch);
    visit("end", self.end);
    visit("score_name", self.score_name);
    visit("more_is_better", self.more_is_better);
    visit("score", self.score);
    visit("reason", self.reason);
    visit("seconds", self.seconds);
    visit("node_hours", self.node_hours);
    visit("ranks", self.ranks);
    visit("hosts", self.hosts);
    visit("devices", self.devices);
  }
  /// More is better; NaN: it is worse than all others.
  double value() const;
};

/// Throws InputError where the folder exists, or what is asked for makes no sense: a point of the
/// space that is no training among others, which is named; a base that costs more than the space's
/// budget, or a budget that no point keeps. Writes nothing.
void check_search(const std::filesystem::path& folder, const SearchSpec& spec,
                  const SearchSpace& space, const config::Config& base,
                  const PointCosts& costs = {});
/// The same, and writes the folder. `space_text`: what the space was read from. Returns how many
/// draws of points the budget refused.
std::size_t write_search(const std::filesystem::path& folder, const SearchSpec& spec,
                         const SearchSpace& space, const std::string& space_text,
                         const config::Config& base, const PointCosts& costs = {});

/// A search's folder, as a process knows it: look() reads what is new.
/// **Thread safety:** one thread.
class SearchFolder {
 public:
  /// Throws InputError naming what is missing or wrong.
  explicit SearchFolder(std::filesystem::path folder);

  /// A network file system may refuse to list or read something for a moment: what is known stays.
  /// Throws InputError, or as the system says, where it does so for a minute.
  void look();

  const std::filesystem::path& path() const { return path_; }
  const SearchSpec& spec() const { return spec_; }
  const SearchSpace& space() const { return space_; }
  const config::Config& base() const { return base_; }
  std::filesystem::path train_toml() const { return path_ / "train.toml"; }
  std::filesystem::path run_of(const std::string& name) const { return path_ / "runs" / name; }

  /// The whole training of each trial that can be trained.
  const std::map<std::size_t, config::Config>& trials() const { return trials_; }
  const std::set<std::size_t>& numbers() const { return numbers_; }
  /// Files in trials/ that are no trials, and why.
  const std::map<std::string, std::string>& bad_trials() const { return bad_; }
  const std::map<Leg, LegResult>& results() const { return results_; }
  const RungResults& scores() const { return scores_; }
  double node_hours() const { return node_hours_; }  ///< used, also without a result
  /// Grows with whatever look() finds: until then all that follows from the folder is the same.
  std::size_t version() const { return version_; }

 private:
  void look_at_all();
  void look_at_trials();
  void look_at(const char* below, bool are_results);

  std::filesystem::path path_;
  SearchSpec spec_;
  SearchSpace space_;
  config::Config base_;
  std::map<std::size_t, config::Config> trials_;
  std::set<std::size_t> numbers_;
  std::map<std::string, std::string> bad_;
  std::map<Leg, LegResult> results_;
  RungResults scores_;
  std::map<std::string, std::unordered_set<std::string>> seen_;  ///< names, by folder
  std::optional<double> refused_since_s_;
  double trials_seen_s_ = -std::numeric_limits<double>::infinity();
  double node_hours_ = 0;
  std::size_t version_ = 0;
};

LegResult read_leg(const std::filesystem::path& file);

}  // namespace lockstep::study

namespace lockstep {

template <>
struct Choices<study::SearchMode> {
  using enum study::SearchMode;
  static constexpr Choice<study::SearchMode> all[] = {{async, "async"}, {sync, "sync"}};
};

template <>
struct Choices<study::LegEnd> {
  using enum study::LegEnd;
  static constexpr Choice<study::LegEnd> all[] = {
      {done, "done"}, {diverged, "diverged"}, {failed, "failed"}, {stopped, "stopped"}};
};

}  // namespace lockstep
