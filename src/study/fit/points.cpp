#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <utility>

#include "lockstep/backend/winograd.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/observe/binding_record.hpp"
#include "lockstep/study/fit/points.hpp"
#include "lockstep/train/files/run_directory.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;
using observe::StepTimes;

/// The first steps allocate and warm up: skips a tenth of all, at least one.
constexpr std::size_t warm_up(std::size_t steps) { return std::max<std::size_t>(1, steps / 10); }

void measure(std::vector<StepTimes> steps, const std::string& file, Sample& sample) {
  require(steps.size() >= 2,
          fmt::format("{}: {} too few to measure", file,
                      steps.empty() ? "no step is" : counted(steps.size(), "step") + " is"));
  steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(warm_up(steps.size())));
  std::vector<double> total_ms;
  for (const StepTimes& one : steps) total_ms.push_back(one.total_ms());
  sample.steps = steps.size();
  sample.step_ms = upper_median(total_ms);
  sample.spread_ms = robust_spread(std::move(total_ms), sample.step_ms);
  sample.parts = observe::medians_of(steps);
  for (const StepTimes& one : steps)
    sample.mean_exposed_ms += one.exposed_comm_ms / static_cast<double>(steps.size());
}

/// Of a backend's description: without its choice of convolutions, which each run measures again.
std::string machine_of(std::string description) {
  const std::size_t choice = description.find(backend::winograd_mark);
  return choice == std::string::npos ? description : description.erase(choice);
}

void take_start(const observe::StartRecord& start, Sample& sample) {
  sample.network = start.model;
  sample.precision = start.precision;
  std::vector<std::string> machines;
  for (const std::string& device : start.devices) machines.push_back(machine_of(device));
  sample.machine = join(machines, "; ");
  sample.epoch_rows = start.rows;
  sample.image = start.image;
  sample.gradient_numbers = start.learning > 0 ? start.learning : start.parameters;
  if (start.batch > 0) sample.batch = start.batch;
}

/// The steps of two starts are one measurement where as many ranks on as many nodes did the same.
void require_one_work(const observe::StartRecord& first, const observe::StartRecord& later,
                      const std::string& file) {
  const auto same = [&](auto one, auto other, const std::string& what) {
    require(one == other, fmt::format("{}: began with {} {} and was resumed with {}: not one "
                                      "measurement",
                                      file, what, one, other));
  };
  same(first.ranks, later.ranks, "ranks =");
  same(first.hosts.size(), later.hosts.size(), "nodes =");
  same(first.batch, later.batch, "batch =");
  same(first.precision, later.precision, "precision =");
  same(first.cores, later.cores, "cores =");
  same(first.gpus, later.gpus, "GPUs =");
}

void count_ranks(const train::RunDirectory& run, std::uint64_t started, Sample& sample) {
  std::set<std::string> hosts;
  const std::vector<observe::RankBinding> ranks = observe::read_bindings(run.binding());
  for (const observe::RankBinding& rank : ranks) hosts.insert(rank.host);
  require(!ranks.empty(), fmt::format("{}: has no ranks", run.binding().string()));
  const std::uint64_t world =
      std::max(started, static_cast<std::uint64_t>(std::max(ranks.front().world, 1)));
  require(ranks.size() >= world, fmt::format("{}: {} of {} ranks are missing",
                                             run.binding().string(), world - ranks.size(), world));
  sample.ranks = ranks.size();
  sample.nodes = hosts.size();
}

/// What `bench train --json` wrote.
struct BenchSample : Sample {
  StepTimes times;

  static void fields(auto& self, auto&& visit) {
    visit("model", self.network);
    visit("precision", self.precision);
    visit("backend", self.machine);
    visit("batch", self.batch);
    visit("ranks", self.ranks);
    visit("steps", self.steps);
    visit("step_ms", self.step_ms);
    visit.later("nodes", self.nodes);
    visit.later("image", self.image);
    visit.later("gradient_numbers", self.gradient_numbers);
    visit.later("buckets", self.buckets);
    visit("forward_ms", self.times.forward_ms);
    visit("backward_ms", self.times.backward_ms);
    visit("exposed_comm_ms", self.times.exposed_comm_ms);
    visit("update_ms", self.times.update_ms);
  }
};

bool is_run(const fs::path& path) { return fs::exists(train::RunDirectory(path).config()); }

/// The measurements of a study's folder: complete ones; the others are still to be done.
std::vector<fs::path> study_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "points"))
    if (entry.path().extension() == ".json" ||
        (entry.is_directory() && entry.path().extension().empty() && is_run(entry.path())))
      files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

void append(Samples& all, Samples more) {
  std::ranges::move(more.good, std::back_inserter(all.good));
  std::ranges::move(more.rejected, std::back_inserter(all.rejected));
}

/// Throws when one of two measurements says something else than the other about `what`.
void require_same(const Sample& one, const Sample& other, std::string Sample::*value,
                  const char* what) {
  if ((one.*value).empty() || (other.*value).empty()) return;
  require(one.*value == other.*value,
          fmt::format("{} has the {} '{}' and {} has '{}': one fit needs one {}", one.name, what,
                      one.*value, other.name, other.*value, what));
}

}  // namespace

Sample read_run(const fs::path& folder) {
  const train::RunDirectory run(folder);
  require(is_run(folder), fmt::format("{}: there is no run", folder.string()));
  Sample sample;
  sample.name = folder.string();
  const auto config = config::config_in(read_text(run.config()), run.config().string());
  sample.network = config.model;
  sample.batch = config.batch;
  std::vector<StepTimes> steps;
  std::optional<observe::StartRecord> first;
  bool warm = true;  // the first start's steps become warm in measure()
  const auto take = [&](const observe::Record& record) {
    if (const auto* step = std::get_if<observe::StepRecord>(&record))
      if (std::exchange(warm, true)) steps.push_back(step->times);
    if (const auto* resume = std::get_if<observe::ResumeRecord>(&record))
      log::warn(
          fmt::format("{}: was resumed with other keys or conditions ({}): is it still one "
                      "measurement?",
                      run.metrics().string(), join(resume->changes, ", ")));
    if (const auto* start = std::get_if<observe::StartRecord>(&record)) {
      if (first) require_one_work(*first, *start, run.metrics().string());
      warm = !first;
      if (!first) first = *start;
      take_start(*start, sample);
    }
    return true;
  };
  const observe::StrangeLines strange = observe::read_records(run.metrics(), take);
  if (strange.count > 0) log::warn(describe(strange, run.metrics()));
  count_ranks(run, first ? first->ranks : 0, sample);
  sample.micro_batches = config::micro_batches(config, std::max(1, static_cast<int>(sample.ranks)));
  measure(std::move(steps), run.metrics().string(), sample);
  require(sample.batch > 0 && sample.step_ms > 0,
          fmt::format("{}: has no measurements", folder.string()));
  return sample;
}

Sample read_bench(const fs::path& file) {
  const std::string name = file.string();
  auto sample = read_fields<BenchSample>(nlohmann::json::parse(read_text(file), nullptr, false),
                                         name, "'lockstep bench train --json' writes such files");
  require(sample.ranks > 0 && sample.batch > 0 && sample.step_ms > 0 &&
              std::isfinite(sample.times.total_ms()),
          fmt::format("{}: has no measurements", name));
  sample.name = name;
  sample.synthetic = true;
  sample.machine = machine_of(sample.machine);
  sample.parts = sample.times;
  return sample;
}

Samples read_samples(const std::vector<std::string>& paths, const ReadSpec& spec) {
  Samples all;
  std::regex match;
  try {
    match.assign(spec.match);
  } catch (const std::regex_error& error) {
    throw InputError(
        fmt::format("--match: '{}' is not a regular expression: {}", spec.match, error.what()));
  }
  const auto take = [&](Sample sample) {
    if (spec.match.empty() || std::regex_search(sample.name, match))
      all.good.push_back(std::move(sample));
  };
  const auto take_file = [&](const fs::path& file) {
    take(file.extension() == ".json" ? read_bench(file) : read_run(file));
  };
  for (const std::string& path : paths) {
    if (fs::is_directory(fs::path(path) / "points"))
      std::ranges::for_each(study_files(path), take_file);
    else if (fs::path(path).extension() == ".csv")
      append(all, read_table(path, spec));
    else
      take_file(path);
  }
  require(!all.good.empty(), fmt::format("{}: no measurements{}", join(paths, ", "),
                                         spec.match.empty() ? "" : " match " + spec.match));
  if (!spec.mixed) require_alike(all.good);
  return all;
}

void require_alike(const std::vector<Sample>& samples) {
  for (std::string Sample::*value : {&Sample::network, &Sample::precision, &Sample::machine}) {
    const char* what = value == &Sample::network     ? "network"
                       : value == &Sample::precision ? "precision"
                                                     : "machine";
    const auto first = std::ranges::find_if(
        samples, [&](const Sample& sample) { return !(sample.*value).empty(); });
    if (first == samples.end()) continue;
    for (const Sample& sample : samples) require_same(*first, sample, value, what);
  }
  for (const Sample& sample : samples)
    require(sample.micro_batches == samples.front().micro_batches,
            fmt::format("{} has {} a step and {} has {}: one fit needs one number",
                        samples.front().name, counted(samples.front().micro_batches, "micro-batch"),
                        sample.name, sample.micro_batches));
}

std::vector<Point> points(const std::vector<Sample>& samples) {
  std::map<std::pair<std::size_t, std::size_t>, std::vector<const Sample*>> configurations;
  for (const Sample& sample : samples)
    configurations[{sample.ranks, sample.batch}].push_back(&sample);
  std::vector<Point> list;
  for (const auto& [key, repetitions] : configurations) {
    Point point{.ranks = key.first, .batch = key.second};
    std::vector<double> exposed_ms, spreads;
    for (const Sample* one : repetitions) {
      point.nodes = std::max(point.nodes, one->nodes);
      point.names.push_back(one->name);
      point.times_ms.push_back(one->step_ms);
      if (one->parts) exposed_ms.push_back(one->parts->exposed_comm_ms);
      if (one->spread_ms > 0) spreads.push_back(one->spread_ms / one->step_ms);
    }
    // The mean of the middle two: the lower alone would make even numbers of repetitions faster.
    point.step_ms = (lower_median(point.times_ms) + upper_median(point.times_ms)) / 2;
    point.has_exposed = exposed_ms.size() == repetitions.size();
    if (point.has_exposed) point.exposed_ms = lower_median(exposed_ms);
    point.spread = lower_median(spreads);
    list.push_back(std::move(point));
  }
  return list;
}

std::vector<Rejected> odd_repetitions(const std::vector<Point>& points) {
  std::vector<Rejected> odd;
  for (const Point& point : points)
    for (std::size_t i = 0; i < point.times_ms.size(); ++i)
      if (const double times = point.times_ms[i] / point.step_ms;
          point.times_ms.size() > 2 && std::abs(std::log(times)) > 0.2)
        odd.push_back({point.names[i], fmt::format("took {:.2f} times the median of its {} "
                                                   "repetitions",
                                                   times, point.times_ms.size())});
  return odd;
}

}  // namespace lockstep::study
