#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/observe/summary.hpp"
#include "lockstep/study/search/show.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "study/page/document.hpp"
#include "study/page/plot.hpp"
#include "study/search/columns.hpp"
#include "study/search/verdict.hpp"

namespace lockstep::study {
namespace {

constexpr std::size_t most_curves = 200, most_named = 5;

/// The score's name, of the first result that has one.
std::string score_name(const SearchFolder& folder) {
  for (const auto& [leg, result] : folder.results())
    if (!result.score_name.empty()) return result.score_name;
  return "score";
}

std::vector<Spot> curve_of(const SearchFolder& folder, std::size_t trial) {
  std::vector<Spot> curve;
  const train::RunDirectory run(folder.run_of(std::to_string(trial)));
  for (const observe::EpochRecord& epoch : observe::read_course(run.metrics()).epochs)
    if (const auto score = score_of(epoch, folder.base().eval.best))
      curve.push_back({static_cast<double>(epoch.epoch), score->score});
  return curve;
}

std::vector<Block> curves_section(const SearchFolder& folder,
                                  const std::vector<std::size_t>& places) {
  Plot plot{.title = "Scores of trials", .y_name = score_name(folder), .x_name = "epoch"};
  const std::size_t drawn = std::min(places.size(), most_curves);
  PlotCurve others{.name = "others", .colour = most_named};
  for (std::size_t k = drawn; k-- > most_named;) {
    std::ranges::copy(curve_of(folder, places[k]), std::back_inserter(others.around));
    others.around.push_back({1, std::numeric_limits<double>::quiet_NaN()});  // a gap
  }
  if (!others.around.empty()) plot.curves.push_back(std::move(others));
  for (std::size_t k = std::min(drawn, most_named); k-- > 0;)
    plot.curves.push_back({.name = fmt::format("trial {}", places[k]),
                           .colour = k,
                           .line = curve_of(folder, places[k])});
  for (const std::uint64_t epoch : folder.spec().epochs)
    plot.marks.push_back({static_cast<double>(epoch), ""});
  std::string svg = plot_svg(plot);
  if (svg.empty()) return {};
  return {
      Heading{"Curves"},
      Figure{"curves", std::move(svg),
             fmt::format("Validations of the first {} trials. All have the learning rates of {} "
                         "epochs, however far they came. Vertical lines: rungs.",
                         drawn, folder.spec().epochs.back())}};
}

/// Where a key's value is between its least and its most, from 0 to 1.
double height_of(const Dimension& dimension, double value) {
  double low = dimension.low, high = dimension.high;
  if (!dimension.choices.empty()) {
    std::vector<double> numbers;
    for (std::size_t k = 0; k < dimension.choices.size(); ++k) {
      config::Config keys;
      config::set_key(keys, dimension.key, dimension.choices[k]);
      numbers.push_back(number_of(dimension, keys).value_or(static_cast<double>(k)));
    }
    const auto [least, most] = std::ranges::minmax(numbers);
    low = least;
    high = most;
  }
  const double share = dimension.log && value > 0 ? std::log(value / low) / std::log(high / low)
                                                  : (value - low) / (high - low);
  return std::clamp(share, 0.0, 1.0);
}

/// One line a trial, through its values of all keys; the score is the last axis.
std::vector<Block> coordinates_section(const SearchFolder& folder,
                                       const std::vector<std::size_t>& places) {
  const auto& dimensions = folder.space().dimensions;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const auto& [leg, result] : folder.results()) {
    if (leg.rung != 0 || result.end != LegEnd::done) continue;
    least = std::min(least, result.value());
    most = std::max(most, result.value());
  }
  if (!(least < most)) return {};
  const auto x_of = [&](std::size_t k) {
    return left + (picture_width - left - right) * static_cast<double>(k) /
                      static_cast<double>(dimensions.size());
  };
  const auto y_of = [](double share) {
    return picture_height - bottom - share * (picture_height - bottom - top);
  };
  std::string svg = open_svg("Parallel coordinates");
  for (std::size_t k = 0; k <= dimensions.size(); ++k) {
    svg += line_at(x_of(k), y_of(0), x_of(k), y_of(1));
    const std::string name = k < dimensions.size() ? dimensions[k].key : score_name(folder);
    svg += text_at(x_of(k), k % 2 == 0 ? picture_height - 26 : picture_height - 6,
                   name.substr(name.rfind('.') + 1));
  }
  for (std::size_t place = places.size(); place-- > 0;) {
    const auto keys = folder.trials().find(places[place]);
    const LegResult& first = folder.results().at({places[place], 0});
    if (keys == folder.trials().end() || first.end != LegEnd::done) continue;
    std::vector<Spot> line;
    for (std::size_t k = 0; k < dimensions.size(); ++k) {
      const auto number = number_of(dimensions[k], keys->second);
      if (number && counts_in(dimensions[k], keys->second))
        line.push_back({x_of(k), y_of(height_of(dimensions[k], *number))});
    }
    line.push_back({x_of(dimensions.size()), y_of((first.value() - least) / (most - least))});
    svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-opacity=\"{}\"/>\n",
                       path_through(line), place < most_named ? colour_of(place) : soft_ink,
                       place < most_named ? "1" : "0.25");
  }
  return {Heading{"Parallel coordinates"},
          Figure{"coordinates", svg + "</svg>\n",
                 fmt::format("One line a trial, from each key's least value (below) to its most; "
                             "on the right the score of rung 0, better ones above. In colours: the "
                             "first {} trials.",
                             most_named)}};
}

std::vector<Block> slices_section(const SearchFolder& folder) {
  std::vector<Block> blocks{Heading{"Slices"}};
  for (const Dimension& dimension : folder.space().dimensions) {
    PlotCurve curve{.name = "trials"};
    for (const auto& [leg, result] : folder.results()) {
      const auto keys = folder.trials().find(leg.trial);
      if (leg.rung != 0 || result.end != LegEnd::done || keys == folder.trials().end()) continue;
      const auto number = number_of(dimension, keys->second);
      if (number && counts_in(dimension, keys->second))
        curve.spots.push_back({*number, result.score});
    }
    std::ranges::sort(curve.spots, {}, &Spot::x);
    Plot plot{.title = dimension.key, .y_name = score_name(folder), .x_name = dimension.key};
    if (dimension.log) plot.x_ticks = PlotAxis{dimension.low, dimension.high, 0, 1, true}.ticks();
    plot.curves.push_back(std::move(curve));
    std::string svg = plot_svg(plot);
    std::string caption = fmt::format("Scores of rung 0 by {}.", dimension.key);
    if (!dimension.choices.empty())
      caption += " Choices, from 0: " + join(dimension.choices, ", ") + ".";
    if (!svg.empty()) blocks.push_back(Figure{dimension.key, std::move(svg), caption});
  }
  return blocks.size() > 1 ? blocks : std::vector<Block>{};
}

std::vector<Block> importance_section(const SearchFolder& folder) {
  TextTable rows{{{"key", "trials", "rank correlation", "95 % interval"}},
                 "Spearman's rank correlation of a key and the score of rung 0, where more is "
                 "better; intervals by a bootstrap over trials. It sees only what rises or falls "
                 "throughout: a best value in the middle of a range shows in the slices."};
  for (const Importance& one : importance(folder))
    rows.rows.push_back(
        {one.key, std::to_string(one.trials), fmt::format("{:.2f}", one.correlation.middle),
         fmt::format("{:.2f} to {:.2f}", one.correlation.low, one.correlation.high)});
  if (rows.rows.size() < 2) return {};
  return {Heading{"Which keys matter"}, std::move(rows)};
}

}  // namespace

std::string search_page(const SearchFolder& folder) {
  const std::vector<std::size_t> places = placed(folder);
  Document page{.title = "Search " + folder.path().filename().string(), .blocks = {}};
  if (!places.empty())
    page.add({Paragraph{fmt::format("First is trial {} with {}: {}. {:.2f} node hours were used.",
                                    places.front(), describe(newest_leg(folder, places.front())),
                                    options_of(folder, places.front()), folder.node_hours())}});
  if (folder.spec().mode == SearchMode::async)
    page.add(
        {Paragraph{"Trials continued as soon as they were among the best so far: which did so "
                   "depends on when results came (mode = async)."}});
  page.add({Heading{"Rungs"}, TextTable{rungs_table(folder), "How far trials came."}});
  page.add(curves_section(folder, places));
  page.add(importance_section(folder));
  page.add(coordinates_section(folder, places));
  page.add(slices_section(folder));
  page.add({Heading{"Trials"}, TextTable{trials_table(folder), "All trials, the first first."}});
  if (const auto notes = placement_notes(folder); !notes.empty())
    page.add({Heading{"Notes"}, Items{notes}});
  return as_html(page, "lockstep search");
}

}  // namespace lockstep::study
