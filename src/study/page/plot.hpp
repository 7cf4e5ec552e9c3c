#pragma once

#include <string>
#include <vector>

#include "study/page/svg.hpp"

/// Pictures of a course: values over steps or epochs.
namespace lockstep::study {

/// One run's values, in rising order of x.
struct Curve {
  std::string name;
  std::size_t colour = 0;        ///< see colour_of()
  std::vector<Spot> around;      ///< faint, below the line: the extremes that the line smooths
  std::vector<Spot> line;        ///< values that are not finite are left out
  std::vector<Spot> spots = {};  ///< single values, with a dot each
  bool dashed = false, dotted = false;
};
/// A vertical line at x, with what it means.
struct PlotMark {
  double x = 0;
  std::string text;
};
struct Plot {
  std::string title, y_name, x_name;
  std::vector<Curve> curves;
  std::vector<PlotMark> marks = {};
  bool share = false;  ///< y is a share from 0 to 1, and written in percent
};
/// Where positive values spread over more than a factor of 20, y is a logarithm. Empty text where
/// no curve has a finite value.
std::string plot_svg(const Plot& plot);

/// Parts that add up, over x: a column from each edge to the next.
struct Stack {
  std::string title, y_name, x_name;
  std::vector<std::string> parts;
  std::vector<double> edges;                 ///< one more than columns
  std::vector<std::vector<double>> heights;  ///< of each column, by part
};
std::string stack_svg(const Stack& stack);

}  // namespace lockstep::study
