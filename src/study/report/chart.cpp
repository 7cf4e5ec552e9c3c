#include "study/report/chart.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "study/report/document.hpp"

namespace lockstep::study {
namespace {

constexpr double picture_width = 480, picture_height = 340;
constexpr double left = 64, right = 16, top = 40, bottom = 48;

std::string short_number(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", value);
}

std::string text_at(double x, double y, const std::string& text, const char* anchor = "middle",
                    const char* colour = "var(--soft, #5b6472)") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n",
                     x, y, anchor, colour, escaped(text));
}

std::string line_at(double x1, double y1, double x2, double y2) {
  return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"var(--line, #d9dee6)\"/>\n",
                     x1, y1, x2, y2);
}

std::string open_svg(const std::string& title) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:g} {:g}\" role=\"img\" "
      "aria-label=\"{}\" font-family=\"system-ui, sans-serif\" font-size=\"17\">\n",
      picture_width, picture_height, escaped(title));
}

/// From values to places in the picture. x is a logarithm.
struct Scale {
  double x_low = 1, x_high = 2, y_low = 0, y_high = 1;
  bool log_y = false;

  double x(double value) const {
    const double share = std::log(value / x_low) / std::log(x_high / x_low);
    return left + share * (picture_width - left - right);
  }
  double y(double value) const {
    const double share = log_y ? std::log(value / y_low) / std::log(y_high / y_low)
                               : (value - y_low) / (y_high - y_low);
    return picture_height - bottom - share * (picture_height - top - bottom);
  }
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
  Scale scale{.log_y = chart.log_y};
  scale.x_low = *std::ranges::min_element(x) / 1.12;
  scale.x_high = *std::ranges::max_element(x) * 1.12;
  const double y_most = *std::ranges::max_element(y);
  scale.y_low = chart.log_y ? *std::ranges::min_element(y) / 1.2 : 0;
  scale.y_high = chart.log_y ? y_most * 1.2 : std::min(y_most * 1.05, 1.5);
  return scale;
}

/// Round values between the ends, about five.
std::vector<double> ticks(const Scale& scale) {
  std::vector<double> values;
  if (scale.log_y) {
    const bool wide = scale.y_high / scale.y_low > 300;
    for (double decade = std::pow(10, std::floor(std::log10(scale.y_low))); decade < scale.y_high;
         decade *= 10)
      for (const double digit : {1.0, 2.0, 5.0})
        if ((digit == 1 || !wide) && decade * digit >= scale.y_low &&
            decade * digit <= scale.y_high)
          values.push_back(decade * digit);
  } else {
    for (double value = 0; value <= scale.y_high + 1e-9; value += 0.25) values.push_back(value);
  }
  return values;
}

std::string axes(const Chart& chart, const Scale& scale) {
  std::string svg;
  for (const double value : ticks(scale)) {
    svg += line_at(left, scale.y(value), picture_width - right, scale.y(value));
    svg += text_at(left - 8, scale.y(value) + 5,
                   chart.log_y ? short_number(value) : fmt::format("{:g} %", 100 * value), "end");
  }
  const double doublings = std::log2(scale.x_high / scale.x_low);
  const double factor = std::pow(2, std::max(1.0, std::ceil(doublings / 7)));
  double value = chart.curve.empty() ? std::ceil(scale.x_low) : chart.curve.front().x;
  for (; value <= scale.x_high; value *= factor)
    svg += text_at(scale.x(value), picture_height - bottom + 20, fmt::format("{:.0f}", value));
  svg += text_at((left + picture_width - right) / 2, picture_height - 6, "ranks");
  svg += text_at(left, 20, chart.y_name, "start", "var(--ink, #1c2330)");
  return svg;
}

std::string path_of(const std::vector<Spot>& spots, const Scale& scale) {
  std::string path;
  for (const Spot& spot : spots)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", scale.x(spot.x),
                        scale.y(std::min(spot.y, scale.y_high)));
  return path;
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
      "<path d=\"{}Z\" fill=\"var(--first, #1f6fb2)\" fill-opacity=\"0.18\"/>\n"
      "<path d=\"{}\" fill=\"none\" stroke=\"var(--first, #1f6fb2)\" stroke-width=\"2.5\"/>\n",
      path_of(around, scale), path_of(middle, scale));
}

std::string spots_svg(const std::vector<Spot>& spots, const Scale& scale, const char* colour) {
  std::string svg;
  for (const Spot& spot : spots)
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\" stroke=\"var(--page, #fff)\">"
        "<title>{:g} ranks: {:.4g}</title></circle>\n",
        scale.x(spot.x), scale.y(std::min(spot.y, scale.y_high)), colour, spot.x, spot.y);
  return svg;
}

/// The parts of a step, in the order of a bar from its foot.
struct BarPart {
  const char* name;
  double TimeShares::*ms;
  const char* colour;
};
constexpr BarPart parts[] = {
    {"rows", &TimeShares::compute, "var(--first, #1f6fb2)"},
    {"fixed", &TimeShares::fixed, "var(--second, #e08214)"},
    {"exposed", &TimeShares::exposed, "var(--third, #b2322f)"},
    {"jitter", &TimeShares::jitter, "var(--fourth, #7a5195)"},
};

}  // namespace

std::string chart_svg(const Chart& chart) {
  const Scale scale = scale_of(chart);
  std::string svg = open_svg(chart.title) + axes(chart, scale);
  if (!chart.dashed.empty()) {
    svg += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"var(--soft, #5b6472)\" stroke-dasharray=\"6 5\"/>\n",
        path_of(chart.dashed, scale));
    svg += text_at(picture_width - right, 20, "- - " + chart.dashed_name, "end");
  }
  if (!chart.curve.empty()) svg += curve_svg(chart.curve, scale);
  svg += spots_svg(chart.measured, scale, "var(--second, #e08214)");
  svg += spots_svg(chart.outliers, scale, "var(--third, #b2322f)");
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
    for (const BarPart& part : parts) {
      const double share = bars.splits[i].*part.ms / bars.splits[i].total();
      y -= share * height;
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\">"
          "<title>{}: {:.3g} ms</title></rect>\n",
          x - 0.35 * each, y, 0.7 * each, share * height, part.colour, part.name,
          bars.splits[i].*part.ms);
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
  for (const BarPart& part : parts) {
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"9\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\"/>\n", x,
        part.colour);
    svg += text_at(x + 17, 20, part.name, "start", "var(--ink, #1c2330)");
    x += 104;
  }
  svg += text_at((left + picture_width - right) / 2, picture_height - 6, "ranks");
  return svg + "</svg>\n";
}

}  // namespace lockstep::study
