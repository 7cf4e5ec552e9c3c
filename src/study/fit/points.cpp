#include "lockstep/study/fit/points.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/base/error.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::study {
namespace {

/// Throws when one of two measurements says something else than the other about `what`.
void require_same(const Sample& one, const Sample& other, std::string Sample::*value,
                  const char* what) {
  if ((one.*value).empty() || (other.*value).empty()) return;
  require(one.*value == other.*value,
          fmt::format("{} has the {} '{}' and {} has '{}': one fit needs one {}", one.name, what,
                      one.*value, other.name, other.*value, what));
}

}  // namespace

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
