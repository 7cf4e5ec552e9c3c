#include "lockstep/study/report/forecast.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/backend/pace.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/study/fit/summaries.hpp"
#include "lockstep/study/report/study_report.hpp"

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

namespace {

std::string common(const std::vector<Sample>& samples, std::string Sample::*value) {
  std::string found;
  for (const Sample& sample : samples) {
    if ((sample.*value).empty()) continue;
    if (!found.empty() && found != sample.*value) return "";
    found = sample.*value;
  }
  return found;
}

std::size_t largest(const std::vector<Sample>& samples, std::size_t Sample::*value) {
  std::size_t most = 0;
  for (const Sample& sample : samples) most = std::max(most, sample.*value);
  return most;
}

std::optional<DataCost> cost_of_data(const std::vector<Point>& real,
                                     const std::vector<Point>& synthetic) {
  std::vector<double> ratios;
  for (const Point& one : real)
    for (const Point& other : synthetic)
      if (one.ranks == other.ranks && one.batch == other.batch)
        ratios.push_back(one.step_ms / other.step_ms);
  if (ratios.empty()) return std::nullopt;
  return DataCost{span_of(ratios, upper_median(ratios)), ratios.size()};
}

/// A rehearsal costs nothing, and MLPerf's epochs are those of one network on one data set.
void require_costs_fit(const Analysis& analysis, const AnalysisSpec& spec, std::size_t image) {
  const bool by_epochs = spec.imagenet || spec.forecast.epochs.has_value();
  require(!analysis.rehearsal || !by_epochs,
          "these are measurements of a rehearsal (--backend clock), whose steps compute nothing: "
          "leave out --imagenet, --trained and --epochs, for no cost of a training follows");
  if (!spec.imagenet || spec.forecast.epochs) return;
  const std::string& network = analysis.network;
  require(network.empty() || network == "resnet50",
          fmt::format("--imagenet has the epochs of ResNet-50, and these are measurements of {}: "
                      "give --trained or --epochs",
                      network));
  constexpr std::size_t side = 224;
  require(
      image == 0 || image == side,
      fmt::format("--imagenet has the epochs of images of {0} x {0}, and these are measurements "
                  "of {1} x {1}: give --trained or --epochs",
                  side, image));
}

std::string percent(const Interval& share) {
  const auto digits = [](double part) {
    return fmt::format("{:.{}f}", 100 * part, part < 0.1 ? 1 : 0);
  };
  return fmt::format("{} % ({} to {})", digits(share.middle), digits(share.low),
                     digits(share.high));
}

std::string usl_text(const Usl& usl) {
  std::string text = fmt::format(
      "universal scalability law: alpha {:.3g} ({:.2g} to {:.2g}), beta {:.3g} ({:.2g} "
      "to {:.2g}), {:.4g} images/s for one",
      usl.alpha.middle, usl.alpha.low, usl.alpha.high, usl.beta.middle, usl.beta.low, usl.beta.high,
      usl.gamma.middle);
  if (const std::optional<double> peak = usl.peak())
    text += fmt::format("; most images/s on {:.0f} ranks", *peak);
  return text;
}

std::vector<std::string> summaries_of(const Fit& fit, const FitSpec& spec) {
  std::vector<std::string> list;
  FitSpec fewer = spec;
  fewer.replicates = std::min<std::size_t>(spec.replicates, 400);
  for (const Series& series : series_of(fit)) {
    const std::vector<Load> loads = series.loads();
    std::string text = fmt::format("{}, {} points: ", series.title(), loads.size());
    const auto serial = series.strong ? amdahl(loads, fewer) : gustafson(loads, fewer);
    if (serial)
      text += fmt::format("serial fraction {} ({})", percent(serial->fraction),
                          series.strong ? "Amdahl" : "Gustafson");
    if (const auto usl = universal_scalability(loads, fewer)) text += "; " + usl_text(*usl);
    list.push_back(text);
  }
  return list;
}

void add_fit(const AnalysisSpec& spec, Analysis& analysis) {
  analysis.why_no_fit = why_no_fit(analysis.points, spec.fit);
  if (!analysis.why_no_fit.empty()) return;
  analysis.fit = fit_law(analysis.points, spec.fit);
  analysis.left_out = leave_out_largest(*analysis.fit, spec.fit);
  analysis.summaries = summaries_of(*analysis.fit, spec.fit);
}

}  // namespace

Analysis analyse(const Samples& samples, const AnalysisSpec& spec) {
  Analysis analysis;
  analysis.network = common(samples.good, &Sample::network);
  analysis.precision = common(samples.good, &Sample::precision);
  analysis.machine = common(samples.good, &Sample::machine);
  std::vector<Sample> real, synthetic;
  for (const Sample& sample : samples.good) (sample.synthetic ? synthetic : real).push_back(sample);
  analysis.synthetic = real.empty() || (spec.synthetic && !synthetic.empty());
  analysis.data_cost = cost_of_data(points(real), points(synthetic));
  const std::vector<Sample>& used = analysis.synthetic ? synthetic : real;
  analysis.rehearsal = std::ranges::any_of(
      used, [](const Sample& sample) { return backend::is_rehearsal(sample.machine); });
  require_costs_fit(analysis, spec, largest(used, &Sample::image));
  double waiting = 0;
  for (const Sample& sample : used)
    if (sample.parts) waiting = std::max(waiting, sample.parts->data_ms / sample.step_ms);
  if (waiting >= 0.1) analysis.waits_for_data = waiting;
  analysis.points = points(used);
  analysis.rejected = samples.rejected;
  for (Rejected& odd : odd_repetitions(analysis.points)) analysis.rejected.push_back(odd);
  AnalysisSpec filled = spec;
  if (filled.fit.buckets == 0)
    filled.fit.buckets = std::max<std::size_t>(1, largest(used, &Sample::buckets));
  analysis.gradient_bytes = sizeof(float) * largest(samples.good, &Sample::gradient_numbers);
  if (!spec.sums.empty()) {
    require(analysis.gradient_bytes > 0,
            "--comm: no measurement says how many gradients are summed: give runs or files of "
            "bench train");
    filled.fit.sums =
        measured_sums(spec.sums, static_cast<double>(analysis.gradient_bytes), filled.fit.buckets);
  }
  add_fit(filled, analysis);
  if (!analysis.fit) return analysis;
  ForecastSpec& asked = filled.forecast;
  if (asked.epoch_rows == 0 && spec.imagenet) asked.epoch_rows = 1281167;
  if (asked.epoch_rows == 0) asked.epoch_rows = largest(samples.good, &Sample::epoch_rows);
  if (spec.imagenet && !asked.epochs) asked.epochs = reference_epochs();
  analysis.forecasts = forecast(*analysis.fit, asked);
  return analysis;
}

}  // namespace lockstep::study
