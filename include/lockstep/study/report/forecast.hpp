#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/study/fit/fit.hpp"
#include "lockstep/study/report/epochs.hpp"

/// What a fitted law says about job sizes: speed, efficiency, cost, and which size to ask for.
namespace lockstep::study {

/// What is asked. 0 and empty: chosen from the measurements.
struct ForecastSpec {
  std::vector<std::size_t> ranks;  ///< empty: doubled from the fewest to 8 times the most measured
  std::size_t batch = 0;           ///< of strong scaling
  std::size_t rows = 0;            ///< of a rank, for weak scaling
  std::size_t ranks_per_node = 0;
  std::size_t epoch_rows = 0;
  std::optional<EpochsCurve> epochs = {};
  double efficiency = 0.7;                ///< the least that the recommended size has
  std::optional<double> node_hours = {};  ///< the most that one training may cost
};

/// The measurement to which efficiency is relative: the best rate of a rank on the fewest ranks.
struct Base {
  std::size_t ranks = 0, batch = 0;
  double images_per_s = 0;
  double rate() const { return images_per_s / static_cast<double>(ranks); }
  std::string text() const;  ///< "8 ranks, batch 3264: 27191 images/s, 3399 a rank"
};
Base base_of(const std::vector<Point>& points);

/// One job size. Costs are of the expected time; nodes are whole.
struct Forecast {
  std::size_t ranks = 0, nodes = 0, batch = 0;
  Interval step_ms, images_per_s, efficiency;
  TimeShares split;
  std::optional<double> epoch_hours, epoch_node_hours;                ///< if the rows are known
  std::optional<double> epochs, training_hours, training_node_hours;  ///< if the epochs are known
  std::string caution;
  double rows() const { return static_cast<double>(batch) / static_cast<double>(ranks); }
};

struct Recommendation {
  std::optional<Forecast> size;  ///< empty: no size does
  std::string why;
};

struct Forecasts {
  Base base;
  bool strong = true;
  std::size_t rows = 0;  ///< the batch, or the rows of a rank
  bool asked = false;    ///< ForecastSpec names them; else they are as measured
  std::size_t ranks_per_node = 1, epoch_rows = 0;
  std::vector<Forecast> sizes;
  Recommendation recommendation;
};

/// Strong scaling, unless only spec.rows is given. Throws InputError naming a size that has more
/// ranks than rows.
Forecasts forecast(const Fit& fit, const ForecastSpec& spec);

}  // namespace lockstep::study
