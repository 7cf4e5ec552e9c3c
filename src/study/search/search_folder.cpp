#include "lockstep/study/search/search_folder.hpp"

#include <dirent.h>
#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;

void require_sound(const SearchSpec& spec, const SearchSpace& space) {
  require(spec.trials > 0 && spec.ranks > 0 && spec.ranks_per_node > 0 && spec.keep_one_of > 1 &&
              !spec.epochs.empty(),
          "a search needs trials, ranks, rungs, and to keep one of two at least");
  require(spec.sampler != PointSampler::sobol || space.dimensions.size() <= most_sobol_dimensions,
          fmt::format("the space has {} keys, and Sobol's points {}: use --sampler random",
                      space.dimensions.size(), most_sobol_dimensions));
  require(spec.epochs.size() <= most_rungs,
          fmt::format("{} rungs are more than {}", spec.epochs.size(), most_rungs));
}

/// What all trials have in common.
config::Config base_of(config::Config base) {
  base.out.clear();
  base.checkpoint.keep = 1;  // of many trials; it changes no bit
  return base;
}

void require_trainable(config::Config training, std::size_t ranks) {
  training.out = "x";
  config::resolve(training, static_cast<int>(ranks));
}

std::string words_of(const PointValues& point) {
  std::vector<std::string> words;
  for (const auto& [key, value] : point) words.push_back(fmt::format("{} = {}", key, value));
  return join(words, ", ");
}

/// A plan's trials, which the budget allows.
class Points {
 public:
  Points(const config::Config& base, const SearchSpec& spec, const SearchSpace& space,
         const PointCosts& costs)
      : base_(base), spec_(spec), space_(space), costs_(costs) {}

  config::Config trial(std::size_t number) {
    if (number > 0) return drawn(number);
    const Excess excess = excess_of(space_.budget, costs_, base_);
    require(excess.limit.empty(),
            fmt::format("the base has {} {:.4g}, and budget.{} is {:.4g}: the base is trial 0",
                        excess.limit, excess.has, excess.limit, excess.most));
    return base_;
  }
  std::size_t refused() const { return refused_; }

 private:
  config::Config drawn(std::size_t number) {
    constexpr std::uint64_t most_draws = 1000;
    Excess least;
    std::string least_words;
    for (std::uint64_t draw = 0; draw < most_draws; ++draw) {
      const PointValues point =
          point_of(space_, spec_.sampler, spec_.seed, static_cast<std::uint32_t>(number - 1), draw);
      const config::Config trial = at(point, number);
      const Excess excess = excess_of(space_.budget, costs_, trial);
      if (excess.limit.empty()) return trial;
      ++refused_;
      if (excess.limit == least.limit && excess.has >= least.has) continue;
      least = excess;
      least_words = words_of(point);
    }
    throw InputError(fmt::format(
        "budget.{} = {:.4g}: none of {} points that were drawn for trial {} keeps it; the least is "
        "{:.4g} ({})",
        least.limit, least.most, most_draws, number, least.has, least_words));
  }

  config::Config at(const PointValues& point, std::size_t number) const {
    config::Config trial = base_;
    for (const auto& [key, value] : point) config::set_key(trial, key, value);
    try {
      require_trainable(trial, spec_.ranks);
    } catch (const InputError& error) {
      throw InputError(
          fmt::format("point {} of the space ({}): {}", number, words_of(point), error.what()));
    }
    return trial;
  }

  const config::Config& base_;
  const SearchSpec& spec_;
  const SearchSpace& space_;
  const PointCosts& costs_;
  std::size_t refused_ = 0;
};

/// A trial's number by its file's name.
std::optional<std::size_t> number_of(const fs::path& file) {
  constexpr std::uint64_t most = 999'999'999;
  const auto number = whole_number<std::uint64_t>(file.stem().string());
  if (file.extension() != ".toml" || !number || *number > most ||
      file.stem() != std::to_string(*number))
    return {};
  return number;
}

/// The names in a folder that end so, without those that are known. What is being written has
/// another name. Not by std::filesystem, which takes several times as long for thousands of them.
std::vector<std::string> new_names(const fs::path& folder, std::string_view ending,
                                   const std::unordered_set<std::string>& known) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  std::vector<std::string> names;
  std::string name;
  errno = open ? 0 : errno;
  for (const dirent* entry; open && (entry = ::readdir(open.get()));) {
    name = entry->d_name;
    if (name.ends_with(ending) && !known.contains(name)) names.push_back(name);
    errno = 0;
  }
  if (errno != 0) fail_by_system("cannot list " + folder.string(), errno);
  return names;
}

}  // namespace

double LegResult::value() const {
  if (end != LegEnd::done) return std::numeric_limits<double>::quiet_NaN();
  return more_is_better ? score : -score;
}

namespace {

struct CheckedTrials {
  std::vector<std::string> files;
  std::size_t refused = 0;
};

/// Throws as check_search().
CheckedTrials checked_trials(const fs::path& folder, const SearchSpec& spec,
                             const SearchSpace& space, const config::Config& base,
                             const PointCosts& costs) {
  require_sound(spec, space);
  require(base.resume.empty() && base.stop_after == 0 && base.stop_after_epoch == 0,
          "resume and stop-after: a search sets them itself");
  require(!base.data.val.empty() || !base.data.val_images.empty() || base.data.held_out > 0,
          "a search compares validations: give --data.val");
  const config::Config kept = base_of(base);
  require_trainable(kept, spec.ranks);
  Points points(kept, spec, space, costs);
  CheckedTrials trials;
  for (std::size_t number = 0; number < spec.trials; ++number)
    trials.files.push_back((number == 0 ? "# The base itself.\n" : "") +
                           config::to_toml_where_other(points.trial(number), kept));
  trials.refused = points.refused();
  require(
      !fs::exists(folder),
      fmt::format("{}: exists already; lockstep search run continues a search", folder.string()));
  require_makable(folder);
  return trials;
}

}  // namespace

void check_search(const fs::path& folder, const SearchSpec& spec, const SearchSpace& space,
                  const config::Config& base, const PointCosts& costs) {
  checked_trials(folder, spec, space, base, costs);
}

std::size_t write_search(const fs::path& folder, const SearchSpec& spec, const SearchSpace& space,
                         const std::string& space_text, const config::Config& base,
                         const PointCosts& costs) {
  const CheckedTrials trials = checked_trials(folder, spec, space, base, costs);
  for (const char* below : {"trials", "results", "attempts", "runs", "logs"})
    make_directories(folder / below);
  write_text_atomically(folder / "train.toml", config::to_toml(base_of(base)));
  write_text_atomically(folder / "space.toml", space_text);
  for (std::size_t number = 0; number < trials.files.size(); ++number)
    write_text_atomically(folder / "trials" / fmt::format("{}.toml", number), trials.files[number]);
  write_text_atomically(folder / "search.json", fields_to_json(spec, true) + "\n");
  return trials.refused;
}

LegResult read_leg(const fs::path& file) {
  return read_fields<LegResult>(parse_json<nlohmann::json>(read_text(file), file.string()),
                                file.string());
}

SearchFolder::SearchFolder(fs::path folder) : path_(std::move(folder)) {
  const fs::path plan = path_ / "search.json", space = path_ / "space.toml";
  require(fs::exists(plan),
          fmt::format("{}: there is no search: lockstep search plan makes one", path_.string()));
  spec_ = read_fields<SearchSpec>(parse_json<nlohmann::json>(read_text(plan), plan.string()),
                                  plan.string());
  space_ = read_space(read_text(space), space.string());
  try {
    require_sound(spec_, space_);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", plan.string(), error.what()));
  }
  base_ = config::config_in(read_text(train_toml()), train_toml().string());
  scores_.resize(spec_.epochs.size());
  look_at_all();
}

void SearchFolder::look() {
  constexpr double patience_s = 60;
  try {
    look_at_all();
    refused_since_s_.reset();
  } catch (const std::exception&) {
    if (!refused_since_s_) refused_since_s_ = now_s();
    if (now_s() - *refused_since_s_ > patience_s) throw;
  }
}

void SearchFolder::look_at_all() {
  // A look at thousands of trials takes as long as one at their results, and few are put there
  // late.
  constexpr double pause_s = 2;
  if (now_s() - trials_seen_s_ > pause_s) {
    look_at_trials();
    trials_seen_s_ = now_s();
  }
  look_at("results", true);
  look_at("attempts", false);
}

void SearchFolder::look_at_trials() {
  for (const std::string& file : new_names(path_ / "trials", ".toml", seen_["trials"])) {
    const fs::path path = path_ / "trials" / file;
    const std::string text = read_text(path);
    seen_["trials"].insert(file);
    ++version_;
    try {
      const auto number = number_of(path);
      require(number.has_value(), fmt::format("{}: a trial's file is NUMBER.toml", path.string()));
      config::Config trial = base_;
      const auto keys = config::apply_toml(trial, text, path.string());
      for (const std::string& key : keys)
        require(!is_of_search(key),
                fmt::format("{}: {} is the same in all trials of a search", path.string(), key));
      try {
        require_trainable(trial, spec_.ranks);
      } catch (const InputError& error) {
        throw InputError(fmt::format("{}: {}", path.string(), error.what()));
      }
      trials_.emplace(*number, std::move(trial));
      numbers_.insert(*number);
    } catch (const InputError& error) {
      bad_[file] = error.what();
    }
  }
}

void SearchFolder::look_at(const char* below, bool are_results) {
  for (const std::string& file : new_names(path_ / below, ".json", seen_[below])) {
    const fs::path path = path_ / below / file;
    const LegResult leg = read_leg(path);
    require(leg.rung < spec_.epochs.size() || !are_results,
            fmt::format("{}: rung {} is not of this search, which has {}", path.string(), leg.rung,
                        counted(spec_.epochs.size(), "rung")));
    seen_[below].insert(file);
    ++version_;
    node_hours_ += leg.node_hours;
    if (!are_results) continue;
    results_[{leg.trial, leg.rung}] = leg;
    scores_[leg.rung][leg.trial] = leg.value();
  }
}

}  // namespace lockstep::study
