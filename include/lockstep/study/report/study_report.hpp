#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/study/fit/summaries.hpp"
#include "lockstep/study/report/forecast.hpp"

/// A scaling study, from its measurements to the text for an allocation proposal.
namespace lockstep::study {

struct AnalysisSpec {
  FitSpec fit{.buckets = 0};      ///< buckets 0: as in the measurements, else 1
  std::vector<CommFigures> sums;  ///< measured by bench comm: fills fit.sums
  ForecastSpec forecast;
  bool imagenet = false;      ///< epochs to accuracy: MLPerf's reference, unless others are given
  bool synthetic = false;     ///< measurements without data, where there are both kinds
  std::size_t trainings = 1;  ///< that the proposal asks for
};

/// How much longer steps take with data than without, in equal configurations.
struct DataCost {
  Interval times;  ///< over the configurations, around their median
  std::size_t configurations = 0;
};

/// All that is known about a study. Without a fit there is only the table.
struct Analysis {
  std::string network, precision, machine;  ///< empty: unknown or mixed
  bool synthetic = false;                   ///< which measurements the points have
  std::vector<Point> points;
  std::vector<Rejected> rejected;  ///< not used, and repetitions that are odd
  bool rehearsal = false;          ///< steps waited and computed nothing: no costs follow
  std::optional<DataCost> data_cost;
  std::optional<double> waits_for_data;  ///< the largest share of a step, if that is a tenth
  std::optional<Fit> fit;
  std::string why_no_fit;
  std::size_t gradient_bytes = 0;  ///< that are summed in a step; 0: unknown
  std::vector<LeftOut> left_out;
  std::vector<std::string> summaries;  ///< one sentence for each series
  std::optional<Forecasts> forecasts;
};

/// Throws InputError when nothing can be said at all, and where epochs to an accuracy are asked for
/// that belong to another training.
Analysis analyse(const Samples& samples, const AnalysisSpec& spec);

/// What `lockstep scaling fit` and `predict` print; `json` is the same for programs.
std::string fit_text(const Analysis& analysis);
std::string forecast_text(const Analysis& analysis);
std::string analysis_json(const Analysis& analysis);

/// The whole report, and its pictures by name.
struct Report {
  std::string markdown, latex, html;
  std::vector<std::pair<std::string, std::string>> figures;
};
Report make_report(const Analysis& analysis, const AnalysisSpec& spec);

}  // namespace lockstep::study
