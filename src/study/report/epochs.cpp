#include "lockstep/study/report/epochs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <variant>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/train/files/run_directory.hpp"

namespace lockstep::study {
namespace {

/// The first epoch that reached it. Throws InputError naming the run if there is none.
std::uint64_t first_epoch(const train::RunDirectory& run, double top1) {
  std::uint64_t first = 0;
  double best = -1;
  std::uint64_t batch = 0;
  const auto one_batch = [&](const observe::StartRecord& start) {
    require(batch == 0 || batch == start.batch,
            fmt::format("{}: began with batch = {} and was resumed with {}: its epochs are of no "
                        "one batch",
                        run.metrics().string(), batch, start.batch));
    batch = start.batch;
  };
  observe::read_records(run.metrics(), [&](const observe::Record& record) {
    if (const auto* start = std::get_if<observe::StartRecord>(&record)) one_batch(*start);
    const auto* epoch = std::get_if<observe::EpochRecord>(&record);
    if (epoch == nullptr || !epoch->validation) return true;
    best = std::max(best, epoch->validation->top1);
    if (best >= top1) first = epoch->epoch;
    return first == 0;
  });
  const std::string path = run.metrics().string();
  require(best >= 0, path + ": the run had no validation (--data.val)");
  require(first > 0,
          fmt::format("{}: no validation reached a top-1 of {:g} %; the best is {:.2f} %", path,
                      100 * top1, 100 * best));
  return first;
}

}  // namespace

std::optional<double> EpochsCurve::at(double batch) const {
  if (points.empty() || batch > points.back().batch || 4 * batch < points.front().batch)
    return std::nullopt;
  if (batch <= points.front().batch) return points.front().epochs;
  const auto above = std::ranges::lower_bound(points, batch, {}, &EpochsAt::batch);
  const EpochsAt &high = *above, &low = *(above - 1);
  const double share = std::log(batch / low.batch) / std::log(high.batch / low.batch);
  return low.epochs + share * (high.epochs - low.epochs);
}

EpochsCurve reference_epochs() {
  // mlcommons/logging, mlperf_logging/rcp_checker/training_4.0.0/rcps_resnet.json: means of 10 to
  // 28 runs each, with LARS.
  return {.source = "MLPerf's reference convergence points v4.0 (ResNet-50 v1.5 on ImageNet, LARS)",
          .goal = "75.9 % top-1",
          .points = {{1632, 35},
                     {3264, 35.2},
                     {4096, 40},
                     {8192, 42},
                     {13056, 45.4},
                     {32768, 56},
                     {49152, 68},
                     {58880, 79.9},
                     {65536, 84.5},
                     {67840, 85.86}}};
}

EpochsCurve read_epochs(const std::filesystem::path& file, const std::string& goal) {
  EpochsCurve curve{.source = file.string(), .goal = goal, .points = {}};
  std::istringstream text(read_text(file));
  std::string line;
  std::getline(text, line);
  require(line.starts_with("batch,epochs"),
          fmt::format("{}:1: does not begin with batch,epochs", file.string()));
  for (std::size_t number = 2; std::getline(text, line); ++number) {
    if (line.empty()) continue;
    std::istringstream cells(line);
    EpochsAt point;
    char comma = 0;
    cells >> point.batch >> comma >> point.epochs;
    require(!cells.fail() && comma == ',' && point.batch > 0 && point.epochs > 0,
            fmt::format("{}:{}: '{}' is not a batch and its epochs", file.string(), number, line));
    curve.points.push_back(point);
  }
  require(!curve.points.empty(), fmt::format("{}: has no batches", file.string()));
  std::ranges::sort(curve.points, {}, &EpochsAt::batch);
  return curve;
}

EpochsCurve epochs_of_runs(const std::vector<std::string>& folders, double top1) {
  std::map<std::size_t, std::vector<double>> reached;
  for (const std::string& folder : folders) {
    const train::RunDirectory run(folder);
    require(std::filesystem::exists(run.config()), fmt::format("{}: there is no run", folder));
    const auto config = config::config_in(read_text(run.config()), run.config().string());
    reached[config.batch].push_back(static_cast<double>(first_epoch(run, top1)));
  }
  EpochsCurve curve{.source = counted(folders.size(), "separate training"),
                    .goal = fmt::format("{:g} % top-1", 100 * top1),
                    .points = {}};
  for (auto& [batch, epochs] : reached)
    curve.points.push_back({static_cast<double>(batch), upper_median(std::move(epochs))});
  return curve;
}

}  // namespace lockstep::study
