#include "lockstep/study/machine/comm_figures.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/base/text/json_text.hpp"

namespace lockstep::study {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t fewest_points = 3;  // of a regime, where there are two
constexpr double far_better = 2.5;        // the sum of squares of two lines against one
constexpr double steep = 1.25;            // a cliff
constexpr double exact = 1e-9;            // relative errors that only rounding makes

struct Line {
  reduce::LinkCost cost;
  double error = 0;  ///< sum of squares, relative to each point
};

double error_of(std::span<const CommPoint> points, const reduce::LinkCost& cost) {
  double sum = 0;
  for (const CommPoint& p : points) sum += std::pow(cost.seconds(p.bytes) / p.seconds - 1, 2);
  return sum;
}

/// Least squares weighted by 1 / t^2, with neither parameter below 0.
Line fit_line(std::span<const CommPoint> points) {
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (const CommPoint& p : points) {
    const double weight = 1 / (p.seconds * p.seconds);
    w += weight;
    wx += weight * p.bytes;
    wxx += weight * p.bytes * p.bytes;
    wy += weight * p.seconds;
    wxy += weight * p.bytes * p.seconds;
  }
  const double determinant = w * wxx - wx * wx;
  double alpha_s = (wxx * wy - wx * wxy) / determinant;
  double per_byte_s = (w * wxy - wx * wy) / determinant;
  if (!(alpha_s >= 0)) alpha_s = 0, per_byte_s = wxy / wxx;
  if (!(per_byte_s > 0)) alpha_s = wy / w, per_byte_s = std::numeric_limits<double>::min();
  const reduce::LinkCost cost{alpha_s, 1 / per_byte_s};
  return {cost, error_of(points, cost)};
}

CommRegime regime(std::span<const CommPoint> points, const Line& line) {
  return {line.cost, points.front().bytes, points.back().bytes};
}

VerbFigures judged(const VerbFigures& read, const std::string& where) {
  const std::vector<CommPoint>& points = read.points;
  require(points.size() >= 2, where + " has less than two points");
  for (std::size_t i = 0; i < points.size(); ++i)
    require(points[i].bytes > (i == 0 ? 0 : points[i - 1].bytes) && points[i].seconds > 0 &&
                points[i].typical_s >= 0,
            where + ": its points are not in rising order, or take no time");
  return figures_of(points);
}

}  // namespace

std::vector<CommRegime> fit_regimes(const std::vector<CommPoint>& points) {
  check(points.size() >= 2, "a line needs two points");
  const std::span<const CommPoint> all = points;
  const Line one = fit_line(all);
  std::vector<CommRegime> best{regime(all, one)};
  double least = one.error / far_better;
  if (one.error < exact) return best;
  for (std::size_t cut = fewest_points; cut + fewest_points <= points.size(); ++cut) {
    const auto low = all.first(cut), high = all.subspan(cut);
    const Line below = fit_line(low), above = fit_line(high);
    if (below.error + above.error >= least) continue;
    least = below.error + above.error;
    best = {regime(low, below), regime(high, above)};
  }
  return best;
}

std::vector<CommCliff> find_cliffs(const std::vector<CommPoint>& points) {
  std::vector<CommCliff> cliffs;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const CommPoint &before = points[i - 1], &after = points[i];
    const double slower = before.bytes / before.seconds / (after.bytes / after.seconds);
    if (slower > steep) cliffs.push_back({before.bytes, after.bytes, slower});
  }
  return cliffs;
}

double seconds_of(const VerbFigures& figures, double bytes) {
  check(!figures.points.empty(), "nothing was measured");
  const auto& points = figures.points;
  const auto above = std::find_if(points.begin(), points.end(),
                                  [bytes](const CommPoint& p) { return p.bytes >= bytes; });
  if (above == points.begin())
    return figures.regimes.front().seconds(bytes) * points.front().typical_s /
           points.front().seconds;
  if (above == points.end())
    return figures.regimes.back().seconds(bytes) * points.back().typical_s / points.back().seconds;
  const CommPoint &high = *above, &low = *(above - 1);
  return low.typical_s +
         (high.typical_s - low.typical_s) * (bytes - low.bytes) / (high.bytes - low.bytes);
}

double bus_factor(const std::string& verb, int ranks) {
  const double n = ranks;
  if (verb.starts_with("all-reduce")) return 2 * (n - 1) / n;
  if (verb == "reduce-scatter" || verb == "all-gather") return (n - 1) / n;
  return 1;
}

VerbFigures figures_of(std::vector<CommPoint> points) {
  VerbFigures figures;
  for (CommPoint& point : points)
    if (point.typical_s == 0) point.typical_s = point.seconds;
  figures.regimes = fit_regimes(points);
  figures.cliffs = find_cliffs(points);
  figures.points = std::move(points);
  return figures;
}

std::string to_json(const CommFigures& figures) {
  Json json = Json::parse(fields_to_json(figures));
  for (auto& [verb, its] : json["verbs"].items())
    for (Json& point : its["points"]) {
      const double rate = point["bytes"].get<double>() / point["seconds"].get<double>();
      point["algbw"] = rate;
      point["busbw"] = bus_factor(verb, figures.ranks) * rate;
    }
  return json_text(json, 1);
}

CommFigures parse_comm(const std::string& json, const std::string& origin) {
  auto figures = read_fields<CommFigures>(Json::parse(json, nullptr, false), origin,
                                          "lockstep bench comm writes such files");
  require(figures.ranks >= 0 && figures.nodes >= 0,
          origin + ": \"ranks\" or \"nodes\" is not a number of 0 or more");
  for (auto& [verb, its] : figures.verbs) its = judged(its, fmt::format("{}: '{}'", origin, verb));
  return figures;
}

}  // namespace lockstep::study
