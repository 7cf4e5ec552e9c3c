#pragma once

#include <string>
#include <vector>

#include "lockstep/study/fit/fit.hpp"
#include "study/page/svg.hpp"

/// Pictures as SVG text, which can be read at the width of a phone.
namespace lockstep::study {

struct Band {
  double x = 0;
  Interval y;
};

/// Values over numbers of ranks: a curve with its band, measured points, and a dashed line.
struct Chart {
  std::string title, y_name;
  bool log_y = false;
  std::vector<Band> curve = {};
  std::vector<Spot> measured = {}, outliers = {};
  std::vector<Spot> dashed = {};
  std::string dashed_name = {};
};
std::string chart_svg(const Chart& chart);

/// One bar for each number of ranks: shares of a step, its time above.
struct Bars {
  std::string title;
  std::vector<double> ranks = {};
  std::vector<TimeShares> splits = {};
};
std::string bars_svg(const Bars& bars);

}  // namespace lockstep::study
