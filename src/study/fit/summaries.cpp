#include "lockstep/study/fit/summaries.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "study/fit/regression.hpp"

namespace lockstep::study {
namespace {

/// A curve of throughput over ranks, and its slopes.
using Curve = double (*)(double ranks, const LawParameters& p, LawParameters& slopes);

double amdahl_curve(double n, const LawParameters& p, LawParameters& slopes) {
  const double time = p[1] + (1 - p[1]) / n;
  slopes = {1 / time, -p[0] * (1 - 1 / n) / (time * time), 0, 0};
  return p[0] / time;
}

double gustafson_curve(double n, const LawParameters& p, LawParameters& slopes) {
  slopes = {n - p[1] * (n - 1), -p[0] * (n - 1), 0, 0};
  return p[0] * slopes[0];
}

double usl_curve(double n, const LawParameters& p, LawParameters& slopes) {
  const double cost = 1 + p[1] * (n - 1) + p[2] * n * (n - 1), value = p[0] * n / cost;
  slopes = {n / cost, -value * (n - 1) / cost, -value * n * (n - 1) / cost, 0};
  return value;
}

/// A fitted curve: the scale, then what it is about; with replicates of all.
struct Fitted {
  LawParameters parameters = {};
  std::vector<LawParameters> replicates;

  Interval interval_of(std::size_t which, double confidence) const {
    std::vector<double> values;
    for (const LawParameters& one : replicates) values.push_back(one[which]);
    return interval_around(parameters[which], std::move(values), confidence);
  }
};

/// In all curves slopes[0] is the curve for scale 1. `relative`: deviations count as shares.
struct CurveFit {
  Curve curve;
  std::size_t parameters;
  bool relative;
  double most = HUGE_VAL;  ///< of every parameter but the scale

  Solution solve(const std::vector<Load>& series, const LawParameters& start) const {
    Problem problem{.count = series.size(), .parameters = parameters};
    problem.high.fill(most);
    problem.high[0] = HUGE_VAL;
    return minimise(problem, start,
                    [&](std::size_t i, const LawParameters& p, LawParameters& slopes) {
                      const double scale = relative ? 1 / series[i].throughput : 1;
                      const double value = curve(series[i].ranks, p, slopes);
                      for (double& slope : slopes) slope *= scale;
                      return scale * (value - series[i].throughput);
                    });
  }

  Fitted fit(const std::vector<Load>& series, const FitSpec& spec) const {
    Fitted fitted;
    const Load& first = *std::ranges::min_element(series, {}, &Load::ranks);
    fitted.parameters = solve(series, {first.throughput / first.ranks, 0.01, 1e-5, 0}).parameters;
    std::vector<Load> smooth = series;
    std::vector<double> residuals;
    LawParameters ignored = {};
    for (Load& load : smooth) {
      load.throughput = curve(load.ranks, fitted.parameters, ignored);
      residuals.push_back((series[residuals.size()].throughput - load.throughput) /
                          (relative ? load.throughput : 1));
    }
    const std::size_t n = series.size(), freedom = n > parameters ? n - parameters : 1;
    const double scale = std::sqrt(static_cast<double>(n) / static_cast<double>(freedom));
    for (std::size_t r = 0; r < spec.replicates; ++r) {
      const Draws draws(spec.seed, r);
      std::vector<Load> disturbed = smooth;
      for (std::size_t i = 0; i < n; ++i) {
        const double sign = draws.below(2 * i + 1, 2) == 0 ? -1 : 1;
        disturbed[i].throughput +=
            sign * scale * residuals[draws.below(2 * i, n)] * (relative ? smooth[i].throughput : 1);
      }
      fitted.replicates.push_back(solve(disturbed, fitted.parameters).parameters);
    }
    return fitted;
  }
};

std::size_t sizes(const std::vector<Load>& series) {
  std::set<double> ranks;
  for (const Load& load : series) ranks.insert(load.ranks);
  return ranks.size();
}

std::optional<SerialFraction> serial_fraction(Curve curve, const std::vector<Load>& series,
                                              const FitSpec& spec) {
  if (sizes(series) < 3) return std::nullopt;
  const CurveFit kind{.curve = curve, .parameters = 2, .relative = true, .most = 1};
  return SerialFraction{kind.fit(series, spec).interval_of(1, spec.confidence), series.size()};
}

}  // namespace

std::optional<SerialFraction> amdahl(const std::vector<Load>& series, const FitSpec& spec) {
  return serial_fraction(amdahl_curve, series, spec);
}

std::optional<SerialFraction> gustafson(const std::vector<Load>& series, const FitSpec& spec) {
  return serial_fraction(gustafson_curve, series, spec);
}

std::optional<Usl> universal_scalability(const std::vector<Load>& series, const FitSpec& spec) {
  if (sizes(series) < 4) return std::nullopt;
  const CurveFit kind{.curve = usl_curve, .parameters = 3, .relative = false};
  const Fitted fitted = kind.fit(series, spec);
  return Usl{.alpha = fitted.interval_of(1, spec.confidence),
             .beta = fitted.interval_of(2, spec.confidence),
             .gamma = fitted.interval_of(0, spec.confidence),
             .points = series.size()};
}

std::optional<double> Usl::peak() const {
  if (!(beta.low > 0) || alpha.middle >= 1) return std::nullopt;
  return std::sqrt((1 - alpha.middle) / beta.middle);
}

std::vector<Load> Series::loads() const {
  std::vector<Load> list;
  for (const Point& point : points)
    list.push_back({static_cast<double>(point.ranks), point.images_per_s()});
  return list;
}

std::string Series::title() const {
  return strong ? fmt::format("strong scaling, batch {:g}", rows)
                : fmt::format("weak scaling, {:g} rows a rank", rows);
}

std::vector<Series> series_of(const std::vector<Point>& points) {
  std::map<std::pair<bool, double>, Series> found;
  for (const Point& point : points)
    for (const bool strong : {true, false}) {
      const double rows = strong ? static_cast<double>(point.batch) : point.rows();
      Series& series = found[{strong, rows}];
      series.strong = strong;
      series.rows = rows;
      series.points.push_back(point);
    }
  std::vector<Series> list;
  for (auto& [key, series] : found)
    if (sizes(series.loads()) >= 3) list.push_back(std::move(series));
  std::ranges::stable_sort(list, std::greater(),
                           [](const Series& series) { return series.points.size(); });
  return list;
}

std::vector<Point> fitted_points(const Fit& fit) {
  std::vector<Point> points;
  for (const Judged& one : fit.points)
    if (!one.outlier) points.push_back(one.point);
  return points;
}

std::vector<Series> series_of(const Fit& fit) { return series_of(fitted_points(fit)); }

}  // namespace lockstep::study
