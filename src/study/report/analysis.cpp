#include <fmt/core.h>

#include <algorithm>

#include "lockstep/backend/pace.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/study/report/study_report.hpp"

namespace lockstep::study {
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
