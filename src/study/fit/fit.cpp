#include "lockstep/study/fit/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/words.hpp"
#include "study/fit/regression.hpp"

namespace lockstep::study {
namespace {

/// The spread of repetitions, as a share of their median; 0 where there is one.
double repetition_spread(const Point& point) {
  if (point.times_ms.size() < 2) return 0;
  std::vector<double> shares;
  for (const double ms : point.times_ms) shares.push_back(ms / point.step_ms);
  return robust_spread(std::move(shares), 1);
}

double usual_jitter(const std::vector<Point>& points) {
  const std::size_t least = points.front().ranks;
  std::vector<double> spreads;
  for (const Point& point : points)
    if (point.ranks == least && point.spread > 0) spreads.push_back(point.spread);
  return lower_median(std::move(spreads));
}

std::vector<Observation> observations_of(const std::vector<Point>& points, const Law& shape) {
  std::vector<Observation> list;
  for (const Point& point : points) list.push_back(observe(point, shape));
  return list;
}

/// Weights 1 / variance: scatter around the law that all points share, and the part of the
/// repetitions' spread that a median of them keeps. `scatter` has both.
void weigh(std::vector<Observation>& observations, const std::vector<Point>& points,
           double scatter) {
  double pooled = 0, repeated = 0;
  for (const Point& point : points) {
    if (point.times_ms.size() < 2) continue;
    pooled += std::pow(repetition_spread(point), 2);
    ++repeated;
  }
  if (repeated == 0) return;
  pooled /= repeated;
  std::vector<double> variances;
  for (const Point& point : points) {
    const double own = point.times_ms.size() < 3 ? pooled : std::pow(repetition_spread(point), 2);
    // A median of n has pi / 2 times the variance of a mean of n.
    variances.push_back(1.57 * (own + pooled) / 2 / static_cast<double>(point.times_ms.size()));
  }
  const double own = mean(variances);
  const double shared = std::max(scatter * scatter - own, scatter * scatter / 4);
  if (shared + own <= 0) return;
  for (std::size_t i = 0; i < points.size(); ++i)
    observations[i].weight = std::sqrt((shared + own) / (shared + variances[i]));
}

Regression weighted_fit(const std::vector<Point>& points, const Law& shape,
                        std::vector<Observation>& observations) {
  observations = observations_of(points, shape);
  const Regression first = regress(observations, shape, {});
  weigh(observations, points, first.scatter());
  return regress(observations, shape, first.law);
}

std::vector<Point> without(const std::vector<Point>& points, std::size_t left_out) {
  std::vector<Point> rest = points;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(left_out));
  return rest;
}

bool rows_differ(const std::vector<Point>& points) {
  return std::ranges::any_of(
      points, [&](const Point& point) { return point.rows() != points.front().rows(); });
}

/// How many times its own uncertainty the worst point is off a law that was fitted to all others.
struct Worst {
  std::size_t index = 0;
  double times = 0;
};

/// An outlier is off by more than a tenth, and by more than chance explains: by 4 standard
/// deviations of its prediction, and more when few points say what a deviation is.
Worst worst_of(const std::vector<Point>& points, const Law& shape) {
  Worst worst;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::vector<Point> rest = without(points, i);
    if (!rows_differ(rest)) continue;
    const std::vector<Observation> observations = observations_of(rest, shape);
    const Regression fitted = regress(observations, shape, {});
    if (fitted.freedom() < 2) continue;
    const Observation at = observe(points[i], shape);
    const double law_ms =
        fitted.law.step_ms(points[i].rows(), static_cast<double>(points[i].ranks));
    const double off = std::abs(std::log(points[i].step_ms / law_ms));
    const double deviation =
        std::max(fitted.scatter(), 0.01) * std::sqrt(1 + leverage(observations, shape, fitted, at));
    const double times = off / deviation / (4 + 8 / static_cast<double>(fitted.freedom()));
    if (off > 0.1 && times > worst.times) worst = {i, times};
  }
  return worst;
}

/// Takes the outliers out of `points`, at most a quarter of them.
std::vector<Point> take_outliers(std::vector<Point>& points, const Law& shape) {
  std::vector<Point> outliers;
  const std::size_t most = points.size() / 4;
  while (outliers.size() < most) {
    const Worst worst = worst_of(points, shape);
    if (worst.times <= 1) break;
    outliers.push_back(points[worst.index]);
    points = without(points, worst.index);
  }
  return outliers;
}

/// Residual bootstrap: the fitted times, disturbed by residuals of random points and signs, fitted
/// again. The residuals are scaled up to what they would be without fitting.
std::vector<Replicate> bootstrap(const std::vector<Observation>& observations, const Law& shape,
                                 const Regression& fitted, const std::vector<double>& residuals,
                                 const FitSpec& spec) {
  std::vector<Replicate> replicates;
  const std::size_t n = observations.size(), freedom = std::max<std::size_t>(fitted.freedom(), 1);
  const double scale =
      std::sqrt(static_cast<double>(n) / static_cast<double>(n - std::min(fitted.free, n - 1)));
  for (std::size_t r = 0; r < spec.replicates; ++r) {
    const Draws draws(spec.seed, r);
    const double doubt = draws.doubt(4 * n + 8, std::min<std::size_t>(freedom, 30));
    const auto disturbance = [&](std::size_t i) {
      const double sign = draws.below(2 * i + 1, 2) == 0 ? -1 : 1;
      return sign * doubt * scale * residuals[draws.below(2 * i, n)];
    };
    std::vector<Observation> disturbed = observations;
    for (std::size_t i = 0; i < n; ++i) {
      disturbed[i].log_ms += residuals[i] + disturbance(i) / disturbed[i].weight;
      disturbed[i].step_ms = std::exp(disturbed[i].log_ms);
      disturbed[i].exposed_ms *= disturbed[i].step_ms / observations[i].step_ms;
    }
    replicates.push_back({regress(disturbed, shape, fitted.law).law, disturbance(n)});
  }
  return replicates;
}

/// The line that holds for this size: the first that reaches it, else the last.
const CommRegime& regime_of(const VerbFigures& figures, double bytes) {
  const auto found = std::ranges::find_if(
      figures.regimes, [bytes](const CommRegime& one) { return bytes <= one.to_bytes; });
  return found == figures.regimes.end() ? figures.regimes.back() : *found;
}

}  // namespace

TimeShares Law::split(double rows, double ranks) const {
  TimeShares split;
  split.compute = c_ms * rows;
  split.fixed = a_ms;
  split.jitter = jitter * split.compute * expected_largest(ranks);
  const double n = static_cast<double>(buckets);
  const double bucket_ms = alpha_ms * std::log2(ranks) + wire_ms * 2 * (ranks - 1) / (ranks * n);
  split.exposed = std::max(bucket_ms, n * bucket_ms - (n - 1) / n * backward * split.compute);
  return split;
}

// A bucket takes alpha_s + bytes / bytes_per_s, and by the law alpha log2(P) + wire 2 (P - 1) / (P
// buckets).
MeasuredSums measured_sums(const std::vector<CommFigures>& files, double gradient_bytes,
                           std::size_t buckets) {
  check(!files.empty() && buckets > 0, "sums without a measurement");
  MeasuredSums mean;
  for (const CommFigures& one : files) {
    const auto found = one.verbs.find("all-reduce");
    require(found != one.verbs.end() && one.ranks > 1,
            fmt::format("--comm: a file of {} has no all-reduces between ranks",
                        counted(static_cast<std::size_t>(one.ranks), "rank")));
    const double ranks = one.ranks, share = 1 / static_cast<double>(files.size());
    const CommRegime& line =
        regime_of(found->second, gradient_bytes / static_cast<double>(buckets));
    mean.alpha_ms += share * 1e3 * line.latency_s / std::log2(ranks);
    mean.wire_ms += share * 1e3 * gradient_bytes / line.bytes_per_s * ranks / (2 * (ranks - 1));
  }
  return mean;
}

std::string why_no_fit(const std::vector<Point>& points, const FitSpec& spec) {
  const std::size_t fewest = std::max<std::size_t>(spec.fewest, 3);
  if (points.size() < fewest)
    return fmt::format("too few: {} of ranks and batch make a table; a law needs {}",
                       counted(points.size(), "configuration"), fewest);
  if (!rows_differ(points))
    return fmt::format(
        "all measurements have {:g} rows a rank: what grows with the rows cannot be "
        "told from what does not. Measure other batches, too, on few ranks",
        points.front().rows());
  return "";
}

Fit fit_law(const std::vector<Point>& all, const FitSpec& spec) {
  const std::string obstacle = why_no_fit(all, spec);
  require(obstacle.empty(), obstacle);
  const Law shape{.alpha_ms = spec.sums ? spec.sums->alpha_ms : 0,
                  .wire_ms = spec.sums ? spec.sums->wire_ms : 0,
                  .buckets = spec.buckets,
                  .backward = spec.backward,
                  .jitter = spec.jitter.value_or(usual_jitter(all)),
                  .measured_sums = spec.sums.has_value()};
  std::vector<Point> kept = all;
  const std::vector<Point> outliers = take_outliers(kept, shape);
  std::vector<Observation> observations;
  const Regression fitted = weighted_fit(kept, shape, observations);
  Fit fit;
  fit.law = fitted.law;
  fit.has_alpha = fitted.has_alpha;
  fit.has_wire = fitted.has_wire;
  fit.scatter = fitted.scatter();
  fit.confidence = spec.confidence;
  std::vector<double> residuals(kept.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const double law_ms = fit.law.step_ms(kept[i].rows(), static_cast<double>(kept[i].ranks));
    residuals[i] = std::log(law_ms) - observations[i].log_ms;
    fit.points.push_back({kept[i], law_ms, false});
  }
  for (const Point& point : outliers)
    fit.points.push_back(
        {point, fit.law.step_ms(point.rows(), static_cast<double>(point.ranks)), true});
  std::ranges::stable_sort(fit.points, [](const Judged& x, const Judged& y) {
    return std::pair(x.point.ranks, x.point.batch) < std::pair(y.point.ranks, y.point.batch);
  });
  fit.replicates = bootstrap(observations, shape, fitted, residuals, spec);
  return fit;
}

Interval predict_step(const Fit& fit, double rows, double ranks) {
  std::vector<double> times_ms;
  for (const Replicate& one : fit.replicates)
    times_ms.push_back(one.law.step_ms(rows, ranks) * std::exp(one.noise));
  return interval_around(fit.law.step_ms(rows, ranks), std::move(times_ms), fit.confidence);
}

Interval interval_of(const Fit& fit, double Law::*number) {
  std::vector<double> values;
  for (const Replicate& one : fit.replicates) values.push_back(one.law.*number);
  return interval_around(fit.law.*number, std::move(values), fit.confidence);
}

std::vector<LeftOut> leave_out_largest(const Fit& fit, const FitSpec& spec) {
  std::vector<Point> rest, largest;
  for (const Judged& one : fit.points)
    if (!one.outlier) (one.point.ranks == fit.most_ranks() ? largest : rest).push_back(one.point);
  if (rest.size() < 3 || !rows_differ(rest)) return {};
  FitSpec again = spec;
  again.fewest = 3;
  const Fit without_them = fit_law(rest, again);
  std::vector<LeftOut> list;
  for (const Point& point : largest)
    list.push_back(
        {point, predict_step(without_them, point.rows(), static_cast<double>(point.ranks))});
  return list;
}

std::size_t Fit::most_ranks() const {
  std::size_t most = 0;
  for (const Judged& one : points)
    if (!one.outlier) most = std::max(most, one.point.ranks);
  return most;
}

double Fit::fewest_rows() const {
  double fewest = HUGE_VAL;
  for (const Judged& one : points)
    if (!one.outlier) fewest = std::min(fewest, one.point.rows());
  return fewest;
}

double Fit::most_rows() const {
  double most = 0;
  for (const Judged& one : points)
    if (!one.outlier) most = std::max(most, one.point.rows());
  return most;
}

std::string caution(const Fit& fit, double rows, double ranks) {
  if (ranks > 8 * static_cast<double>(fit.most_ranks()))
    return fmt::format(
        "{:g} ranks are {:.0f} times the most that were measured ({}): a larger part "
        "of the network may behave differently",
        ranks, ranks / static_cast<double>(fit.most_ranks()), fit.most_ranks());
  if (rows < fit.fewest_rows() / 2 || rows > 2 * fit.most_rows())
    return fmt::format("{:g} rows a rank are far from the {:g} to {:g} that were measured", rows,
                       fit.fewest_rows(), fit.most_rows());
  return "";
}

}  // namespace lockstep::study
