#include "lockstep/study/search/best.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/base/text/table.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/study/search/show.hpp"
#include "study/search/columns.hpp"
#include "study/search/verdict.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;

constexpr double level = 0.01;
constexpr std::size_t most_repeats = 1000;

double variance_of(const std::vector<double>& values) {
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return sum / static_cast<double>(values.size() - 1);
}

/// Of Student's t with that many degrees of freedom beyond -t and t: 1 less the integral of the
/// density between them, by Simpson's rule in the angle x = sqrt(freedom) tan(angle), where the
/// density is a power of a cosine.
double both_tails(double t, double freedom) {
  constexpr int pieces = 2000;
  const double end = std::atan(std::abs(t) / std::sqrt(freedom));
  const double scale = std::exp(std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2)) /
                       std::sqrt(std::acos(-1.0));
  double sum = 0;
  for (int k = 0; k <= pieces; ++k) {
    const double weight = k == 0 || k == pieces ? 1 : k % 2 == 1 ? 4 : 2;
    sum += weight * std::pow(std::cos(end * k / pieces), freedom - 1);
  }
  return std::max(0.0, 1 - 2 * scale * sum * end / pieces / 3);
}

fs::path repeats_folder(const SearchFolder& folder) { return folder.path() / "repeats"; }

std::string repeat_name(std::size_t trial, std::size_t repeat) {
  return fmt::format("{}.seed-{}", trial, repeat);
}

fs::path repeat_file(const SearchFolder& folder, std::size_t trial, std::size_t repeat) {
  return repeats_folder(folder) / (repeat_name(trial, repeat) + ".json");
}

struct RepeatedList {
  std::vector<std::size_t> trials;
  static void fields(auto& self, auto&& visit) { visit("trials", self.trials); }
};

class Repeats : public TrainingList {
 public:
  Repeats(SearchFolder& folder, std::vector<std::size_t> trials, std::size_t repeats)
      : folder_(folder), trials_(std::move(trials)), repeats_(repeats) {}

  void look() override {
    folder_.look();
    due_.clear();
    for (std::size_t repeat = 1; repeat <= repeats_; ++repeat)
      for (const std::size_t trial : trials_)
        if (!fs::exists(repeat_file(folder_, trial, repeat)))
          due_.push_back(trial * most_repeats + repeat);
  }
  const std::vector<std::size_t>& due() const override { return due_; }
  std::size_t most_to_come() const override { return 0; }
  Training training(std::size_t piece) const override {
    const std::size_t trial = piece / most_repeats, repeat = piece % most_repeats;
    const std::string name = repeat_name(trial, repeat);
    Training one{.run = name,
                 .name = name,
                 .result = repeat_file(folder_, trial, repeat),
                 .attempts = folder_.path() / "attempts" / name,
                 .keys = folder_.trials().at(trial),
                 .to_epoch = folder_.spec().epochs.back(),
                 .trial = trial,
                 .rung = repeat,
                 .whole = true};
    one.keys.seed += repeat;
    return one;
  }
  std::uint64_t epochs(std::size_t) const override { return folder_.spec().epochs.back(); }
  bool is_complete() const override { return due_.empty(); }
  fs::path claims() const override { return repeats_folder(folder_) / "claims"; }

 private:
  SearchFolder& folder_;
  std::vector<std::size_t> trials_;
  std::size_t repeats_;
  std::vector<std::size_t> due_;
};

}  // namespace

double chance_of_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() < 2 || b.size() < 2) return 1;
  const double one = variance_of(a) / static_cast<double>(a.size()),
               other = variance_of(b) / static_cast<double>(b.size());
  const double difference = mean(a) - mean(b);
  if (one + other == 0) return difference == 0 ? 1 : 0;
  const double freedom = (one + other) * (one + other) /
                         (one * one / static_cast<double>(a.size() - 1) +
                          other * other / static_cast<double>(b.size() - 1));
  return both_tails(difference / std::sqrt(one + other), freedom);
}

BestOf best_of(const std::vector<RepeatedTrial>& trials) {
  BestOf best;
  const auto value_of = [&](std::size_t k) {
    return trials[k].scores.empty() ? -std::numeric_limits<double>::infinity()
                                    : mean(trials[k].scores);
  };
  std::vector<std::size_t> order(trials.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, value_of);
  // Any two may have been the first two.
  const double pairs = static_cast<double>(trials.size() * (trials.size() - 1)) / 2;
  bool separated = !trials[order[0]].scores.empty();
  for (const std::size_t k : order) {
    best.order.push_back(trials[k].trial);
    if (k == order[0]) continue;
    // One without any score, of which all diverged, is worse for certain.
    const double chance = trials[k].scores.empty() && separated
                              ? 0
                              : chance_of_difference(trials[order[0]].scores, trials[k].scores);
    best.chances.push_back(chance);
    separated = separated && chance < level / pairs;
  }
  if (separated && trials.size() > 1) best.winner = best.order[0];
  return best;
}

std::vector<std::size_t> repeated_trials(const SearchFolder& folder, std::size_t most) {
  const fs::path file = repeats_folder(folder) / "trials.json";
  if (!fs::exists(file)) {
    RepeatedList list;
    for (const std::size_t trial : placed(folder))
      if (list.trials.size() < most && newest_leg(folder, trial).end == LegEnd::done)
        list.trials.push_back(trial);
    require(!list.trials.empty(), folder.path().string() + ": no trial has a score yet");
    if (folder.trials().contains(0) && std::ranges::find(list.trials, 0u) == list.trials.end())
      list.trials.push_back(0);
    make_directories(repeats_folder(folder));
    publish_text(file, fields_to_json(list) + "\n");
  }
  auto list = read_fields<RepeatedList>(parse_json<nlohmann::json>(read_text(file), file.string()),
                                        file.string());
  for (const std::size_t trial : list.trials)
    require(folder.trials().contains(trial),
            fmt::format("{}: trial {} is not in trials/", file.string(), trial));
  return list.trials;
}

std::unique_ptr<TrainingList> repeats_of(SearchFolder& folder,
                                         const std::vector<std::size_t>& trials,
                                         std::size_t repeats) {
  return std::make_unique<Repeats>(folder, trials, repeats);
}

std::string best_text(const SearchFolder& folder, const std::vector<std::size_t>& trials,
                      std::size_t repeats) {
  std::vector<RepeatedTrial> all;
  std::string notes;
  double sign = 1;
  for (const std::size_t trial : trials) {
    RepeatedTrial& one = all.emplace_back();
    one.trial = trial;
    for (std::size_t repeat = 1; repeat <= repeats; ++repeat) {
      const fs::path file = repeat_file(folder, trial, repeat);
      if (!fs::exists(file)) continue;
      const LegResult result = read_leg(file);
      if (result.end == LegEnd::done) {
        one.scores.push_back(result.value());
        sign = result.more_is_better ? 1 : -1;
      } else {
        notes += fmt::format("trial {}, repeat {}: {}\n", trial, repeat, describe(result));
      }
    }
  }
  const BestOf best = best_of(all);
  std::vector<std::vector<std::string>> rows{
      {"place", "trial", "repeats", "mean", "deviation", "chance"}};
  for (std::size_t place = 0; place < best.order.size(); ++place) {
    const auto& one = *std::ranges::find(all, best.order[place], &RepeatedTrial::trial);
    const std::size_t count = one.scores.size();
    rows.push_back({std::to_string(place + 1), name_of(one.trial), std::to_string(count),
                    count > 0 ? fmt::format("{:.4f}", sign * mean(one.scores)) : "-",
                    count > 1 ? fmt::format("{:.4f}", std::sqrt(variance_of(one.scores))) : "-",
                    place > 0 ? fmt::format("{:.2g}", best.chances[place - 1]) : "-"});
  }
  std::string text =
      table(rows) + notes + "chance: that equal trials would differ as much from the first\n";
  if (best.winner)
    return text +
           fmt::format("the best is trial {}: {}", *best.winner, options_of(folder, *best.winner));
  return text + fmt::format(
                    "not separated: trial {} has the best mean, but is not better than all "
                    "others for certain; more --repeats may tell",
                    best.order[0]);
}

}  // namespace lockstep::study
