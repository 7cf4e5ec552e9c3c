#include "lockstep/study/report/forecast.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/study/fit/summaries.hpp"

namespace lockstep::study {
namespace {

std::vector<std::size_t> usual_ranks(const Fit& fit, std::size_t least, const Forecasts& of) {
  std::vector<std::size_t> ranks;
  for (std::size_t n = least; n <= 8 * fit.most_ranks(); n *= 2) {
    const double rows = static_cast<double>(of.rows) / static_cast<double>(of.strong ? n : 1);
    if (rows >= 1 && caution(fit, rows, static_cast<double>(n)).empty()) ranks.push_back(n);
  }
  return ranks.empty() ? std::vector<std::size_t>{fit.most_ranks()} : ranks;
}

/// The batch of the longest strong series; else of the largest measurement.
std::size_t usual_batch(const std::vector<Point>& points) {
  for (const Series& series : series_of(points))
    if (series.strong) return static_cast<std::size_t>(series.rows);
  return std::ranges::max_element(points, {}, &Point::ranks)->batch;
}

std::size_t usual_ranks_per_node(const std::vector<Point>& points) {
  std::size_t most = 1;
  for (const Point& point : points)
    if (point.nodes > 0) most = std::max(most, (point.ranks + point.nodes - 1) / point.nodes);
  return most;
}

void add_costs(const ForecastSpec& spec, std::size_t epoch_rows, Forecast& size) {
  if (epoch_rows == 0) return;
  const double nodes = static_cast<double>(size.nodes);
  const double steps = static_cast<double>(epoch_rows) / static_cast<double>(size.batch);
  size.epoch_hours = steps * size.step_ms.middle / 3.6e6;
  size.epoch_node_hours = nodes * *size.epoch_hours;
  if (!spec.epochs) return;
  size.epochs = spec.epochs->at(static_cast<double>(size.batch));
  if (!size.epochs) return;
  size.training_hours = *size.epochs * *size.epoch_hours;
  size.training_node_hours = *size.epochs * *size.epoch_node_hours;
}

Forecast forecast_of(const Fit& fit, const ForecastSpec& spec, const Forecasts& all,
                     std::size_t ranks) {
  Forecast size;
  size.ranks = ranks;
  size.nodes = (ranks + all.ranks_per_node - 1) / all.ranks_per_node;
  size.batch = all.strong ? all.rows : all.rows * ranks;
  require(size.batch >= ranks,
          fmt::format("{} ranks are more than the {} rows of a batch", ranks, size.batch));
  const double p = static_cast<double>(ranks), images = 1e3 * static_cast<double>(size.batch);
  size.step_ms = predict_step(fit, size.rows(), p);
  size.images_per_s = {images / size.step_ms.high, images / size.step_ms.middle,
                       images / size.step_ms.low};
  const double base = p * all.base.rate();
  size.efficiency = {size.images_per_s.low / base, size.images_per_s.middle / base,
                     size.images_per_s.high / base};
  size.split = fit.law.split(size.rows(), p);
  size.caution = caution(fit, size.rows(), p);
  add_costs(spec, all.epoch_rows, size);
  return size;
}

/// Why this size cannot be recommended; empty: it can.
std::string objection(const Forecast& size, const ForecastSpec& spec) {
  if (!size.caution.empty()) return size.caution;
  if (size.efficiency.middle < spec.efficiency)
    return fmt::format("{} would have an efficiency of {:.0f} %, less than {:.0f} %",
                       counted(size.ranks, "rank"), 100 * size.efficiency.middle,
                       100 * spec.efficiency);
  if (spec.epochs && !size.epochs)
    return fmt::format("no one has shown that batch {} reaches {}", size.batch, spec.epochs->goal);
  if (spec.node_hours && size.training_node_hours.value_or(0) > *spec.node_hours)
    return fmt::format("a training on {} would cost {:.3g} node-hours, more than {:g}",
                       counted(size.ranks, "rank"), *size.training_node_hours, *spec.node_hours);
  return "";
}

/// The fastest training without an objection; without epochs the most images/s.
Recommendation recommend(const std::vector<Forecast>& sizes, const ForecastSpec& spec) {
  Recommendation best;
  const auto faster = [](const Forecast& one, const Forecast& other) {
    if (one.training_hours && other.training_hours)
      return *one.training_hours < *other.training_hours;
    return one.images_per_s.middle > other.images_per_s.middle;
  };
  for (const Forecast& size : sizes)
    if (objection(size, spec).empty() && (!best.size || faster(size, *best.size))) best.size = size;
  if (!best.size) {
    best.why = "no size can be recommended";
    if (!sizes.empty()) best.why += ": " + objection(sizes.front(), spec);
    return best;
  }
  best.why = fmt::format("of the sizes with an efficiency of at least {:.0f} % it {}",
                         100 * spec.efficiency,
                         best.size->training_hours ? "ends a training first" : "is the fastest");
  const auto larger = std::ranges::find_if(
      sizes, [&](const Forecast& size) { return size.ranks > best.size->ranks; });
  if (larger != sizes.end())
    if (const std::string why = objection(*larger, spec); !why.empty()) best.why += "; " + why;
  return best;
}

}  // namespace

std::string Base::text() const {
  return fmt::format("{}, batch {}: {:.0f} images/s, {:.4g} a rank", counted(ranks, "rank"), batch,
                     images_per_s, rate());
}

Base base_of(const std::vector<Point>& points) {
  const Point* best = nullptr;
  for (const Point& point : points)
    if (!best || point.ranks < best->ranks ||
        (point.ranks == best->ranks && point.rate() > best->rate()))
      best = &point;
  check(best != nullptr, "a base of no points");
  return {.ranks = best->ranks, .batch = best->batch, .images_per_s = best->images_per_s()};
}

Forecasts forecast(const Fit& fit, const ForecastSpec& spec) {
  const std::vector<Point> points = fitted_points(fit);
  Forecasts all;
  all.base = base_of(points);
  all.strong = spec.batch > 0 || spec.rows == 0;
  all.asked = spec.batch > 0 || spec.rows > 0;
  all.rows = spec.batch > 0 ? spec.batch : spec.rows > 0 ? spec.rows : usual_batch(points);
  all.ranks_per_node = spec.ranks_per_node > 0 ? spec.ranks_per_node : usual_ranks_per_node(points);
  all.epoch_rows = spec.epoch_rows;
  const std::vector<std::size_t> ranks =
      spec.ranks.empty() ? usual_ranks(fit, all.base.ranks, all) : spec.ranks;
  for (const std::size_t n : ranks) all.sizes.push_back(forecast_of(fit, spec, all, n));
  all.recommendation = recommend(all.sizes, spec);
  return all;
}

}  // namespace lockstep::study
