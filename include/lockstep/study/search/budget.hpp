#pragma once

#include <functional>
#include <string>

#include "lockstep/config/config.hpp"

/// What a search's points may cost once they are trained: so a search among networks compares those
/// that their user can use.
namespace lockstep::study {

/// What is 0 has no limit.
struct Budget {
  double flops = 0;       ///< of one image's inference: 2 for each multiply-add
  double latency_ms = 0;  ///< of a batch of one image, on the machine where the search is planned
};

/// What a training with these keys costs in the end, in the units of a Budget.
struct PointCosts {
  std::function<double(const config::Config&)> flops, latency_ms;
};

/// By the network for the rows of the training's data set; and by `PROGRAM bench inference`, once
/// for each network. Both throw InputError naming the data set or what failed.
PointCosts point_costs(const std::string& program);

/// A limit that a training does not keep.
struct Excess {
  std::string limit = {};  ///< "flops"; empty: it keeps all
  double has = 0, most = 0;
};
/// The first limit that a training with these keys does not keep. One without a function for its
/// cost is kept.
Excess excess_of(const Budget& budget, const PointCosts& costs, const config::Config& config);

}  // namespace lockstep::study
