#include "study/page/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

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

namespace {

constexpr double legend_line = 24;

struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

struct Axes {
  PlotAxis x, y;
  std::string x_name, y_name;
  bool share = false;
  std::vector<double> x_ticks = {};
};

PlotAxis y_axis_of(const Extent& y, const Plot& plot) {
  PlotAxis axis{.low = 0, .high = y.high, .from = picture_height - bottom, .to = top};
  if (plot.share) {
    axis.high = std::min(plot.most_share, std::max(0.05, y.high * 1.05));
  } else if (y.low > 0 && (plot.log_y || y.high > 20 * y.low)) {
    axis.log = true;
    axis.low = y.low / 1.1;
    axis.high = y.high * 1.1;
  } else {
    axis.low = std::min(0.0, y.low);
    axis.high = y.high > axis.low ? axis.low + 1.05 * (y.high - axis.low) : axis.low + 1;
  }
  return axis;
}

PlotAxis x_axis_of(const Extent& x, bool log = false) {
  if (log)
    return {.low = x.low / 1.12,
            .high = x.high * 1.12,
            .from = left,
            .to = picture_width - right,
            .log = true};
  const double high = x.high > x.low ? x.high : x.low + 1;
  return {.low = x.low, .high = high, .from = left, .to = picture_width - right};
}

std::string axes_svg(const Axes& axes) {
  std::string svg;
  for (const double value : axes.y.ticks()) {
    svg += line_at(left, axes.y.at(value), picture_width - right, axes.y.at(value));
    svg += text_at(left - 8, axes.y.at(value) + 5,
                   axes.share ? fmt::format("{:g} %", 100 * value) : short_number(value), "end");
  }
  for (const double value : axes.x_ticks.empty() ? axes.x.ticks() : axes.x_ticks)
    svg += text_at(axes.x.at(value), picture_height - bottom + 20, short_number(value));
  svg += text_at((left + picture_width - right) / 2, picture_height - 6, axes.x_name);
  return svg + text_at(left, 20, axes.y_name, "start", ink);
}

/// A value beyond the picture is drawn at its edge.
Spot place(const Axes& axes, const Spot& spot) {
  return {axes.x.at(std::clamp(spot.x, axes.x.low, axes.x.high)),
          axes.y.at(std::clamp(spot.y, axes.y.low, axes.y.high))};
}

/// The line is broken where a value is not finite.
std::string line_svg(const std::vector<Spot>& line, const Axes& axes, const std::string& style) {
  std::string path;
  std::vector<Spot> places;
  const auto end_piece = [&] {
    if (places.size() == 1) places.push_back(places.front());
    path += path_through(places);
    places.clear();
  };
  for (const Spot& spot : line)
    if (std::isfinite(spot.y))
      places.push_back(place(axes, spot));
    else
      end_piece();
  end_piece();
  if (path.empty()) return "";
  return fmt::format(
      "<path d=\"{}\" fill=\"none\" stroke-linejoin=\"round\" stroke-linecap=\"round\" {}/>\n",
      path, style);
}

const char* dashes(const PlotCurve& curve) {
  return curve.dotted   ? " stroke-dasharray=\"2 5\""
         : curve.dashed ? " stroke-dasharray=\"6 5\""
                        : "";
}

std::string curve_lines(const PlotCurve& curve, const Axes& axes, bool one_line) {
  const std::string stroke = fmt::format("stroke=\"{}\"", colour_of(curve.colour));
  std::string svg;
  if (curve.filled) {
    std::vector<Spot> area;
    for (const Spot& spot : curve.around) area.push_back(place(axes, spot));
    svg += fmt::format("<path d=\"{}Z\" fill=\"{}\" fill-opacity=\"0.18\"/>\n", path_through(area),
                       colour_of(curve.colour));
  } else {
    svg += line_svg(curve.around, axes,
                    stroke + (one_line ? " stroke-opacity=\"0.4\"" : " stroke-opacity=\"0.25\""));
  }
  svg += line_svg(curve.line, axes, stroke + " stroke-width=\"2\"" + dashes(curve));
  for (const Spot& spot : curve.spots) {
    if (!std::isfinite(spot.y)) continue;
    const Spot at = place(axes, spot);
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\" stroke=\"var(--page, #fff)\">"
        "<title>{}, {} {:g}: {}</title></circle>\n",
        at.x, at.y, colour_of(curve.colour), escaped(curve.name), axes.x_name, spot.x,
        axes.share ? fmt::format("{:.2f} %", 100 * spot.y) : fmt::format("{:.5g}", spot.y));
  }
  return svg;
}

std::string marks_svg(const std::vector<PlotMark>& marks, const Axes& axes) {
  std::string svg;
  for (const PlotMark& mark : marks) {
    const double x = place(axes, {mark.x, axes.y.low}).x;
    // What is wider than the line can be pointed at.
    svg += fmt::format(
        "<g><title>{0}</title><path d=\"M{1:.1f} {2:.1f}V{3:.1f}\" stroke=\"transparent\" "
        "stroke-width=\"12\"/><path d=\"M{1:.1f} {2:.1f}V{3:.1f}\" stroke=\"{4}\" "
        "stroke-dasharray=\"3 4\"/><path d=\"M{1:.1f} {2:.1f}l-5 -8h10z\" fill=\"{4}\"/></g>\n",
        escaped(mark.text), x, top, picture_height - bottom, ink);
  }
  return svg;
}

/// The end of a long name tells runs apart.
std::string shortened(const std::string& name) {
  constexpr std::size_t most = 44;
  return name.size() <= most ? name : "..." + name.substr(name.size() - most + 3);
}

std::string legend_svg(const std::vector<PlotCurve>& curves, double y) {
  std::string svg;
  for (const PlotCurve& curve : curves) {
    svg += fmt::format("<path d=\"M{:.0f} {:.0f}h24\" stroke=\"{}\" stroke-width=\"3\"{}/>\n", 16.0,
                       y - 6, colour_of(curve.colour), dashes(curve));
    svg += text_at(48, y, shortened(curve.name), "start", ink);
    y += legend_line;
  }
  return svg;
}

}  // namespace

std::string plot_svg(const Plot& plot) {
  Extent x, y;
  for (const PlotCurve& curve : plot.curves)
    for (const auto* spots : {&curve.around, &curve.line, &curve.spots})
      for (const Spot& spot : *spots) {
        y.take(spot.y);
        if (std::isfinite(spot.y)) x.take(spot.x);
      }
  if (y.empty()) return "";
  const Axes axes{x_axis_of(x, !plot.x_ticks.empty()),
                  y_axis_of(y, plot),
                  plot.x_name,
                  plot.y_name,
                  plot.share,
                  plot.x_ticks};
  const bool legend = plot.curves.size() > 1;
  const double height =
      picture_height + (legend ? legend_line * static_cast<double>(plot.curves.size()) : 0);
  std::string svg = open_svg(plot.title, height) + axes_svg(axes);
  for (const PlotCurve& curve : plot.curves) svg += curve_lines(curve, axes, !legend);
  svg += marks_svg(plot.marks, axes);
  if (legend) svg += legend_svg(plot.curves, picture_height + 16);
  return svg + "</svg>\n";
}

std::string stack_svg(const Stack& stack) {
  double most = 0;
  for (const auto& column : stack.heights) {
    double sum = 0;
    for (const double height : column) sum += height;
    if (std::isfinite(sum)) most = std::max(most, sum);
  }
  if (most <= 0 || stack.heights.empty()) return "";
  const Axes axes{x_axis_of({stack.edges.front(), stack.edges.back()}), y_axis_of({0, most}, {}),
                  stack.x_name, stack.y_name};
  const std::size_t rows = (stack.parts.size() + 1) / 2;
  std::string svg =
      open_svg(stack.title, picture_height + legend_line * static_cast<double>(rows)) +
      axes_svg(axes);
  std::vector<double> foot(stack.heights.size(), 0);
  for (std::size_t part = 0; part < stack.parts.size(); ++part) {
    std::vector<Spot> upper, lower;
    for (std::size_t k = 0; k < stack.heights.size(); ++k) {
      const double height = stack.heights[k][part], sum = foot[k] + height;
      for (const double edge : {stack.edges[k], stack.edges[k + 1]}) {
        lower.push_back(place(axes, {edge, foot[k]}));
        upper.push_back(place(axes, {edge, sum}));
      }
      foot[k] = sum;
    }
    upper.insert(upper.end(), lower.rbegin(), lower.rend());
    svg += fmt::format("<path d=\"{}Z\" fill=\"{}\"><title>{}</title></path>\n",
                       path_through(upper), colour_of(part), escaped(stack.parts[part]));
    const double x = part % 2 == 0 ? 16 : picture_width / 2;
    const double y = picture_height + 16 + legend_line * static_cast<double>(part / 2);
    svg += box_at({x, y - 11}, {12, 12}, colour_of(part));
    svg += text_at(x + 18, y, stack.parts[part], "start", ink);
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::study
