#include "study/page/svg.hpp"

#include <fmt/core.h>

#include <cmath>

#include "study/page/document.hpp"

namespace lockstep::study {
namespace {

constexpr const char* colours[] = {"var(--first, #1f6fb2)", "var(--second, #e08214)",
                                   "var(--third, #b2322f)", "var(--fourth, #7a5195)",
                                   "var(--fifth, #2a8a57)", "var(--sixth, #8a94a3)"};

/// 1, 2 or 5 times a power of ten: the next above.
double round_up(double step) {
  const double decade = std::pow(10, std::floor(std::log10(step)));
  for (const double digit : {1.0, 2.0, 5.0})
    if (digit * decade >= step * (1 - 1e-9)) return digit * decade;
  return 10 * decade;
}

}  // namespace

double PlotAxis::at(double value) const {
  const double share =
      log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  return from + share * (to - from);
}

std::vector<double> PlotAxis::ticks() const {
  std::vector<double> values;
  if (!log) {
    const double step = round_up((high - low) / 5);
    for (double k = std::ceil(low / step); k * step <= high * (1 + 1e-9); ++k)
      values.push_back(k * step);
    return values;
  }
  const bool wide = high / low > 300;
  for (double decade = std::pow(10, std::floor(std::log10(low))); decade < high; decade *= 10)
    for (const double digit : {1.0, 2.0, 5.0})
      if ((digit == 1 || !wide) && decade * digit >= low && decade * digit <= high)
        values.push_back(decade * digit);
  return values;
}

const char* colour_of(std::size_t k) { return colours[k % std::size(colours)]; }

std::string short_number(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", value);
}

std::string open_svg(const std::string& title, double height) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:g} {:g}\" role=\"img\" "
      "aria-label=\"{}\" font-family=\"system-ui, sans-serif\" font-size=\"17\">\n",
      picture_width, height, escaped(title));
}

std::string text_at(double x, double y, const std::string& text, const char* anchor,
                    const char* colour) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n",
                     x, y, anchor, colour, escaped(text));
}

std::string line_at(double x1, double y1, double x2, double y2) {
  return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"var(--line, #d9dee6)\"/>\n",
                     x1, y1, x2, y2);
}

std::string box_at(Spot corner, Spot size, const std::string& fill, const std::string& title) {
  const std::string box = fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\" fill=\"{}\"",
      corner.x, corner.y, size.x, size.y, fill);
  return title.empty() ? box + "/>\n" : box + "><title>" + escaped(title) + "</title></rect>\n";
}

std::string path_through(const std::vector<Spot>& places) {
  std::string path;
  for (const Spot& place : places)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", place.x, place.y);
  return path;
}

}  // namespace lockstep::study
