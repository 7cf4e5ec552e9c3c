#include "lockstep/study/machine/comm_figures.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/json_text.hpp"

namespace lockstep::study {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t fewest_points = 3;  // of a regime, where there are two
constexpr double far_better = 2.5;        // the sum of squares of two lines against one
constexpr double steep = 1.25;            // a cliff
constexpr double exact = 1e-9;            // relative errors that only rounding makes

struct Line {
  double alpha_s = 0, per_byte_s = 0, error = 0;  ///< error: sum of squares, relative to each point
};

double error_of(std::span<const CommPoint> points, double alpha_s, double per_byte_s) {
  double sum = 0;
  for (const CommPoint& p : points)
    sum += std::pow((alpha_s + per_byte_s * p.bytes) / p.seconds - 1, 2);
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
  return {alpha_s, per_byte_s, error_of(points, alpha_s, per_byte_s)};
}

CommRegime regime(std::span<const CommPoint> points, const Line& line) {
  return {.from_bytes = points.front().bytes,
          .to_bytes = points.back().bytes,
          .alpha_s = line.alpha_s,
          .bytes_per_s = 1 / line.per_byte_s};
}

double typical(const CommPoint& point) {
  return point.typical_s > 0 ? point.typical_s : point.seconds;
}

Json to_json(const VerbFigures& figures, double factor) {
  Json points = Json::array(), regimes = Json::array(), cliffs = Json::array();
  for (const CommPoint& p : figures.points)
    points.push_back({{"bytes", p.bytes},
                      {"seconds", p.seconds},
                      {"typical_s", typical(p)},
                      {"algbw", p.bytes / p.seconds},
                      {"busbw", factor * p.bytes / p.seconds}});
  for (const CommRegime& r : figures.regimes)
    regimes.push_back({{"from_bytes", r.from_bytes},
                       {"to_bytes", r.to_bytes},
                       {"alpha_s", r.alpha_s},
                       {"bytes_per_s", r.bytes_per_s}});
  for (const CommCliff& c : figures.cliffs)
    cliffs.push_back(
        {{"from_bytes", c.from_bytes}, {"to_bytes", c.to_bytes}, {"slower", c.slower}});
  return {{"points", std::move(points)},
          {"regimes", std::move(regimes)},
          {"cliffs", std::move(cliffs)}};
}

double number(const Json& object, const char* key, const std::string& where) {
  require(
      object.is_object() && object.contains(key) && object[key].is_number() &&
          object[key].get<double>() >= 0,
      fmt::format("{}: '{}' is not a number of 0 or more; lockstep bench comm writes such files",
                  where, key));
  return object[key].get<double>();
}

std::string text(const Json& object, const char* key, const std::string& where) {
  require(object.is_object() && object.contains(key) && object[key].is_string(),
          fmt::format("{}: '{}' is not text; lockstep bench comm writes such files", where, key));
  return object[key].get<std::string>();
}

VerbFigures parse_verb(const Json& json, const std::string& where) {
  require(json.is_object() && json.contains("points") && json["points"].is_array() &&
              json["points"].size() >= 2,
          where + " has less than two points");
  std::vector<CommPoint> points;
  for (const Json& point : json["points"]) {
    points.push_back({number(point, "bytes", where), number(point, "seconds", where),
                      point.contains("typical_s") ? number(point, "typical_s", where) : 0});
    const bool rises = points.size() == 1 || points.back().bytes > points[points.size() - 2].bytes;
    require(points.back().seconds > 0 && points.back().bytes > 0 && rises,
            where + ": its points are not in rising order, or take no time");
  }
  return figures_of(std::move(points));
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
    return figures.regimes.front().seconds(bytes) * typical(points.front()) /
           points.front().seconds;
  if (above == points.end())
    return figures.regimes.back().seconds(bytes) * typical(points.back()) / points.back().seconds;
  const CommPoint &high = *above, &low = *(above - 1);
  return typical(low) +
         (typical(high) - typical(low)) * (bytes - low.bytes) / (high.bytes - low.bytes);
}

double bus_factor(const std::string& verb, int ranks) {
  const double n = ranks;
  if (verb.starts_with("all-reduce")) return 2 * (n - 1) / n;
  if (verb == "reduce-scatter" || verb == "all-gather") return (n - 1) / n;
  return 1;
}

VerbFigures figures_of(std::vector<CommPoint> points) {
  VerbFigures figures;
  figures.regimes = fit_regimes(points);
  figures.cliffs = find_cliffs(points);
  figures.points = std::move(points);
  return figures;
}

std::string to_json(const CommFigures& figures) {
  Json verbs = Json::object();
  for (const auto& [verb, its] : figures.verbs)
    verbs[verb] = to_json(its, bus_factor(verb, figures.ranks));
  Json json = {{"ranks", figures.ranks},
               {"nodes", figures.nodes},
               {"transport", figures.transport},
               {"verbs", std::move(verbs)}};
  if (!figures.nccl.empty()) json["nccl"] = figures.nccl;
  return json_text(json, 1);
}

CommFigures parse_comm(const std::string& json, const std::string& origin) {
  const Json all = Json::parse(json, nullptr, false);
  require(all.is_object(), origin + " is not a JSON object; lockstep bench comm writes such files");
  CommFigures figures;
  figures.ranks = static_cast<int>(number(all, "ranks", origin));
  figures.nodes = static_cast<int>(number(all, "nodes", origin));
  figures.transport = text(all, "transport", origin);
  if (all.contains("nccl")) figures.nccl = text(all, "nccl", origin);
  require(all.contains("verbs") && all["verbs"].is_object(), origin + " has no 'verbs'");
  for (const auto& [verb, its] : all["verbs"].items())
    figures.verbs[verb] = parse_verb(its, fmt::format("{}: '{}'", origin, verb));
  return figures;
}

}  // namespace lockstep::study
