#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "app/cli/table.hpp"
#include "app/commands.hpp"
#include "app/status.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/base/json_text.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/observe/binding.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/train/run_directory.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

/// The speed of one run.
struct Point {
  std::string run;
  std::size_t ranks = 0, nodes = 0, batch = 0, steps = 0;
  double step_ms = 0;     ///< the median
  double exposed_ms = 0;  ///< of communication, on average
  double images_per_s() const { return 1e3 * static_cast<double>(batch) / step_ms; }
};

/// The first steps allocate and warm up: skips a tenth of all, at least one.
constexpr std::size_t warm_up(std::size_t steps) { return std::max<std::size_t>(1, steps / 10); }

void count_ranks(const train::RunDirectory& run, Point& point) {
  std::set<std::string> hosts;
  const std::vector<observe::RankBinding> ranks = observe::read_bindings(run.binding());
  for (const observe::RankBinding& rank : ranks) hosts.insert(rank.host);
  point.ranks = ranks.size();
  point.nodes = hosts.size();
}

void measure_steps(const train::RunDirectory& run, Point& point) {
  std::vector<double> total_ms, exposed_ms;
  const auto take = [&](const observe::Record& record) {
    if (const auto* step = std::get_if<observe::StepRecord>(&record)) {
      total_ms.push_back(step->times.total_ms());
      exposed_ms.push_back(step->times.exposed_comm_ms);
    }
    return true;
  };
  const observe::StrangeLines strange = observe::read_records(run.metrics(), take);
  if (strange.count > 0) log::warn(describe(strange, run.metrics()));
  require(total_ms.size() >= 2, fmt::format("{}: {} step(s) are too few to measure",
                                            run.metrics().string(), total_ms.size()));
  const auto first = static_cast<std::ptrdiff_t>(warm_up(total_ms.size()));
  total_ms.erase(total_ms.begin(), total_ms.begin() + first);
  exposed_ms.erase(exposed_ms.begin(), exposed_ms.begin() + first);
  point.steps = total_ms.size();
  for (const double ms : exposed_ms) point.exposed_ms += ms / static_cast<double>(point.steps);
  point.step_ms = upper_median(std::move(total_ms));
}

Point measure(const std::string& path) {
  const train::RunDirectory run(path);
  require(std::filesystem::exists(run.config()), fmt::format("{}: there is no run", path));
  Point point;
  point.run = path;
  config::Config config;
  config::apply_toml(config, read_text(run.config()), run.config().string());
  point.batch = config.batch;
  count_ranks(run, point);
  measure_steps(run, point);
  require(point.ranks > 0 && point.step_ms > 0, fmt::format("{}: has no measurements", path));
  return point;
}

/// Compares each run with the one with the fewest ranks.
Json compare(std::vector<Point> points) {
  std::ranges::stable_sort(points, {}, &Point::ranks);
  const Point& least = points.front();
  Json list = Json::array();
  for (const Point& point : points) {
    const double speedup = point.images_per_s() / least.images_per_s();
    const double ranks = static_cast<double>(point.ranks) / static_cast<double>(least.ranks);
    list.push_back({{"run", point.run},
                    {"ranks", point.ranks},
                    {"nodes", point.nodes},
                    {"batch", point.batch},
                    {"steps", point.steps},
                    {"step_ms", point.step_ms},
                    {"images_per_s", point.images_per_s()},
                    {"speedup", speedup},
                    {"efficiency", speedup / ranks},
                    {"exposed_comm_ms", point.exposed_ms}});
  }
  return list;
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

int compare_runs(const std::vector<std::string>& runs, bool json) {
  std::vector<Point> points;
  for (const std::string& path : runs) points.push_back(measure(path));
  const Json compared = compare(std::move(points));
  log::info(json ? json_text(compared, 2) : points_as_text(compared));
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
      "scaling", "Compare the speed of runs on different numbers of ranks (jobs/scaling.sbatch)");
  app.add("run", options->runs, "two or more runs' folders").required();
  app.add_flag("--json", options->json, "print JSON");
  return {app, [options](Launch&) { return compare_runs(options->runs, options->json); }};
}

}  // namespace lockstep::app
