#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "app/commands.hpp"
#include "lockstep/backend/pace.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/table.hpp"
#include "lockstep/study/fit/points.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr double most_efficient = 1.05;  // above it, it is not noise

/// Compares each run with the one with the fewest ranks.
Json compare(std::vector<study::Sample> runs) {
  std::ranges::stable_sort(runs, {}, &study::Sample::ranks);
  const study::Sample& least = runs.front();
  Json list = Json::array();
  for (const study::Sample& run : runs) {
    const double speedup = run.images_per_s() / least.images_per_s();
    const double ranks = static_cast<double>(run.ranks) / static_cast<double>(least.ranks);
    list.push_back({{"run", run.name},
                    {"ranks", run.ranks},
                    {"nodes", run.nodes},
                    {"batch", run.batch},
                    {"steps", run.steps},
                    {"step_ms", run.step_ms},
                    {"images_per_s", run.images_per_s()},
                    {"speedup", speedup},
                    {"efficiency", speedup / ranks},
                    {"exposed_comm_ms", run.mean_exposed_ms}});
  }
  return list;
}

/// What other work two runs did, so that their speeds compare more than their ranks. An older
/// program's records do not say everything.
std::string difference(const study::Sample& one, const study::Sample& other) {
  const auto differ = [](const auto& a, const auto& b) {
    const std::remove_cvref_t<decltype(a)> unknown{};
    return a != b && a != unknown && b != unknown;
  };
  if (differ(one.network, other.network)) return "networks";
  if (differ(one.precision, other.precision)) return "precisions";
  if (differ(one.image, other.image)) return "sizes of images";
  if (differ(one.gradient_numbers, other.gradient_numbers))
    return "numbers of learned weights (--freeze)";
  if (differ(one.machine, other.machine)) return "machines";
  return differ(one.micro_batches, other.micro_batches) ? "numbers of micro-batches" : "";
}

std::string points_as_text(const Json& points) {
  std::vector<std::vector<std::string>> rows{{"ranks", "nodes", "batch", "steps", "ms a step",
                                              "exposed comm.", "images/s", "speed-up",
                                              "efficiency"}};
  for (const Json& point : points)
    rows.push_back({point["ranks"].dump(), point["nodes"].dump(), point["batch"].dump(),
                    point["steps"].dump(), fmt::format("{:.1f}", point["step_ms"].get<double>()),
                    fmt::format("{:.1f}", point["exposed_comm_ms"].get<double>()),
                    fmt::format("{:.0f}", point["images_per_s"].get<double>()),
                    fmt::format("{:.2f}", point["speedup"].get<double>()),
                    fmt::format("{:.0f} %", 100 * point["efficiency"].get<double>())});
  return table(rows) +
         "speed-up and efficiency are relative to the run with the fewest ranks; ms a step is the "
         "median, without the first tenth";
}

/// Prints a table of runs, compared with the one on the fewest ranks.
int compare_runs(const std::vector<std::string>& runs, bool json) {
  std::vector<study::Sample> samples;
  for (const std::string& path : runs) samples.push_back(study::read_run(path));
  if (std::ranges::any_of(samples, [](const study::Sample& sample) {
        return backend::is_rehearsal(sample.machine);
      }))
    log::warn("a rehearsal (--backend clock) is among these runs: its steps computed nothing");
  for (const study::Sample& one : samples)
    if (const std::string what = difference(samples.front(), one); !what.empty())
      log::warn(
          fmt::format("{} and {} have other {}: their speed-up and efficiency compare more "
                      "than ranks",
                      samples.front().name, one.name, what));
  const Json compared = compare(std::move(samples));
  for (const Json& point : compared)
    if (point["efficiency"] > most_efficient)
      log::warn(
          fmt::format("{}: an efficiency of {:.0f} %: it has another batch a rank than the "
                      "run with the fewest ranks, or one of the two was disturbed",
                      point["run"].get<std::string>(), 100 * point["efficiency"].get<double>()));
  log::text(json ? json_text(compared, 2) : points_as_text(compared));
  return status_done;
}

}  // namespace

Command add_scaling(Arguments root) {
  struct Options {
    std::vector<std::string> runs;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  Arguments app = root.add_command(
      "scaling",
      "Scaling studies: plan, run, fit, predict, report (jobs/SCALING.md). With runs' folders: "
      "compare their speed");
  app.add("runs", options->runs, "two or more runs' folders to compare");
  app.add_flag("--json", options->json, "print JSON");
  const std::vector<Command> steps = {add_scaling_plan(app), add_scaling_run(app),
                                      add_scaling_fit(app), add_scaling_predict(app),
                                      add_scaling_report(app)};
  return {app, [options, steps](Launch& launch) {
            for (const Command& step : steps)
              if (step.app.given()) return step.run(launch);
            require(!options->runs.empty(),
                    "scaling: name runs to compare, or one of plan, run, fit, predict, report");
            return compare_runs(options->runs, options->json);
          }};
}

}  // namespace lockstep::app
