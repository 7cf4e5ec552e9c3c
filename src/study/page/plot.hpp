#pragma once

#include <string>
#include <vector>

/// Pictures as SVG text that can be read at the width of a phone: their parts, and pictures of a
/// course: values over steps or epochs.
namespace lockstep::study {

struct Spot {
  double x = 0, y = 0;
};

/// From values to places: `low` is drawn at `from`, `high` at `to`.
struct PlotAxis {
  double low = 0, high = 1, from = 0, to = 1;
  bool log = false;
  double at(double value) const;
  /// Round values between low and high: about five, or 1, 2 and 5 of each decade.
  std::vector<double> ticks() const;
};

inline constexpr double picture_width = 480, picture_height = 340;
inline constexpr double left = 64, right = 16, top = 40, bottom = 48;

/// `k` counts from 0: the colours of the page, again from the first after the last.
const char* colour_of(std::size_t k);
inline constexpr const char* ink = "var(--ink, #1c2330)";
inline constexpr const char* soft_ink = "var(--soft, #5b6472)";

/// "1.5M", "20k", "0.25"
std::string short_number(double value);

std::string open_svg(const std::string& title, double height = picture_height);
std::string text_at(double x, double y, const std::string& text, const char* anchor = "middle",
                    const char* colour = soft_ink);
std::string line_at(double x1, double y1, double x2, double y2);
/// A box; with a title, it is shown where the pointer rests.
std::string box_at(Spot corner, Spot size, const std::string& fill, const std::string& title = "");
/// "M1.0 2.0L3.0 4.0": places, not values.
std::string path_through(const std::vector<Spot>& places);

/// One run's values, in rising order of x.
struct PlotCurve {
  std::string name;
  std::size_t colour = 0;         ///< see colour_of()
  std::vector<Spot> around = {};  ///< faint, below the line: the extremes that the line smooths
  bool filled = false;            ///< `around` goes around an area
  std::vector<Spot> line = {};    ///< values that are not finite are left out
  std::vector<Spot> spots = {};   ///< single values, with a dot each
  bool dashed = false, dotted = false;
};
/// A vertical line at x, with what it means.
struct PlotMark {
  double x = 0;
  std::string text;
};
struct Plot {
  std::string title, y_name, x_name;
  std::vector<PlotCurve> curves = {};
  std::vector<PlotMark> marks = {};
  bool share = false;  ///< y is a share from 0 to `most_share`, and written in percent
  double most_share = 1;
  bool log_y = false;                ///< in any case
  std::vector<double> x_ticks = {};  ///< then x is a logarithm; empty: round values
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
