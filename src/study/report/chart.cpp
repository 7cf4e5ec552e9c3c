#include "study/report/chart.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "study/page/document.hpp"

namespace lockstep::study {
namespace {

/// x is a logarithm.
struct Scale {
  PlotAxis x_axis, y_axis;
  double x(double value) const { return x_axis.at(value); }
  /// What is above the picture is drawn at its upper edge.
  double y(double value) const { return y_axis.at(std::min(value, y_axis.high)); }
};

Scale scale_of(const Chart& chart) {
  std::vector<double> x, y;
  for (const Band& band : chart.curve) {
    x.push_back(band.x);
    y.insert(y.end(), {band.y.low, band.y.high});
  }
  for (const auto* spots : {&chart.measured, &chart.outliers, &chart.dashed})
    for (const Spot& spot : *spots) {
      x.push_back(spot.x);
      y.push_back(spot.y);
    }
  const double y_most = *std::ranges::max_element(y);
  return {.x_axis = {.low = *std::ranges::min_element(x) / 1.12,
                     .high = *std::ranges::max_element(x) * 1.12,
                     .from = left,
                     .to = picture_width - right,
                     .log = true},
          .y_axis = {.low = chart.log_y ? *std::ranges::min_element(y) / 1.2 : 0,
                     .high = chart.log_y ? y_most * 1.2 : std::min(y_most * 1.05, 1.5),
                     .from = picture_height - bottom,
                     .to = top,
                     .log = chart.log_y}};
}

/// An efficiency has a tick at each quarter.
std::vector<double> y_ticks(const PlotAxis& axis) {
  if (axis.log) return axis.ticks();
  std::vector<double> values;
  for (double value = 0; value <= axis.high + 1e-9; value += 0.25) values.push_back(value);
  return values;
}

std::string axes(const Chart& chart, const Scale& scale) {
  std::string svg;
  for (const double value : y_ticks(scale.y_axis)) {
    svg += line_at(left, scale.y(value), picture_width - right, scale.y(value));
    svg += text_at(left - 8, scale.y(value) + 5,
                   chart.log_y ? short_number(value) : fmt::format("{:g} %", 100 * value), "end");
  }
  const double doublings = std::log2(scale.x_axis.high / scale.x_axis.low);
  const double factor = std::pow(2, std::max(1.0, std::ceil(doublings / 7)));
  double value = chart.curve.empty() ? std::ceil(scale.x_axis.low) : chart.curve.front().x;
  for (; value <= scale.x_axis.high; value *= factor)
    svg += text_at(scale.x(value), picture_height - bottom + 20, fmt::format("{:.0f}", value));
  svg += text_at((left + picture_width - right) / 2, picture_height - 6, "ranks");
  svg += text_at(left, 20, chart.y_name, "start", ink);
  return svg;
}

std::string path_of(std::vector<Spot> spots, const Scale& scale) {
  for (Spot& spot : spots) spot = {scale.x(spot.x), scale.y(spot.y)};
  return path_through(spots);
}

std::string curve_svg(const std::vector<Band>& curve, const Scale& scale) {
  std::vector<Spot> middle, around;
  for (const Band& band : curve) {
    middle.push_back({band.x, band.y.middle});
    around.push_back({band.x, band.y.high});
  }
  for (auto band = curve.rbegin(); band != curve.rend(); ++band)
    around.push_back({band->x, band->y.low});
  return fmt::format(
      "<path d=\"{0}Z\" fill=\"{2}\" fill-opacity=\"0.18\"/>\n"
      "<path d=\"{1}\" fill=\"none\" stroke=\"{2}\" stroke-width=\"2.5\"/>\n",
      path_of(around, scale), path_of(middle, scale), colour_of(0));
}

std::string spots_svg(const std::vector<Spot>& spots, const Scale& scale, const char* colour) {
  std::string svg;
  for (const Spot& spot : spots)
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\" stroke=\"var(--page, #fff)\">"
        "<title>{:g} ranks: {:.4g}</title></circle>\n",
        scale.x(spot.x), scale.y(spot.y), colour, spot.x, spot.y);
  return svg;
}

/// The parts of a step, in the order of a bar from its foot.
struct BarPart {
  const char* name;
  double TimeShares::*ms;
};
constexpr BarPart parts[] = {
    {"rows", &TimeShares::compute},
    {"fixed", &TimeShares::fixed},
    {"exposed", &TimeShares::exposed},
    {"jitter", &TimeShares::jitter},
};

}  // namespace

std::string chart_svg(const Chart& chart) {
  const Scale scale = scale_of(chart);
  std::string svg = open_svg(chart.title) + axes(chart, scale);
  if (!chart.dashed.empty()) {
    svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-dasharray=\"6 5\"/>\n",
                       path_of(chart.dashed, scale), soft_ink);
    svg += text_at(picture_width - right, 20, "- - " + chart.dashed_name, "end");
  }
  if (!chart.curve.empty()) svg += curve_svg(chart.curve, scale);
  svg += spots_svg(chart.measured, scale, colour_of(1));
  svg += spots_svg(chart.outliers, scale, colour_of(2));
  return svg + "</svg>\n";
}

std::string bars_svg(const Bars& bars) {
  std::string svg = open_svg(bars.title);
  const double each = (picture_width - left - right) / static_cast<double>(bars.ranks.size());
  const double height = picture_height - top - bottom - 14;
  for (const double share : {0.0, 0.5, 1.0}) {
    const double y = picture_height - bottom - share * height;
    svg += line_at(left, y, picture_width - right, y);
    svg += text_at(left - 8, y + 5, fmt::format("{:g} %", 100 * share), "end");
  }
  for (std::size_t i = 0; i < bars.ranks.size(); ++i) {
    const double x = left + (static_cast<double>(i) + 0.5) * each;
    double y = picture_height - bottom;
    for (std::size_t k = 0; k < std::size(parts); ++k) {
      const BarPart& part = parts[k];
      const double share = bars.splits[i].*part.ms / bars.splits[i].total();
      y -= share * height;
      svg += box_at({x - 0.35 * each, y}, {0.7 * each, share * height}, colour_of(k),
                    fmt::format("{}: {:.3g} ms", part.name, bars.splits[i].*part.ms));
    }
    const double total_ms = bars.splits[i].total();
    svg += text_at(x, y - 5,
                   fmt::format("{:.{}f}", total_ms,
                               total_ms < 10    ? 2
                               : total_ms < 100 ? 1
                                                : 0));
    svg += text_at(x, picture_height - bottom + 20, fmt::format("{:.0f}", bars.ranks[i]));
  }
  double x = left;
  for (std::size_t k = 0; k < std::size(parts); ++k) {
    svg += box_at({x, 9}, {12, 12}, colour_of(k));
    svg += text_at(x + 17, 20, parts[k].name, "start", ink);
    x += 104;
  }
  svg += text_at((left + picture_width - right) / 2, picture_height - 6, "ranks");
  return svg + "</svg>\n";
}

}  // namespace lockstep::study
