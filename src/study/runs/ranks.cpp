#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/text/join.hpp"
#include "lockstep/observe/stragglers.hpp"
#include "study/page/plot.hpp"
#include "study/runs/story.hpp"

namespace lockstep::study {
namespace {

constexpr std::size_t most_rows = 32;
constexpr auto& columns = observe::step_parts;

double step_ms_of(const observe::RanksRecord& ranks) {
  double sum = 0;
  for (const observe::StepPart& part : columns) sum += (ranks.*part.ranks).median_ms;
  return sum;
}

/// Three digits, so that a cell has room for them.
std::string cell_text(double ms) {
  return ms < 10 ? fmt::format("{:.2f}", ms) : fmt::format("{:.{}f}", ms, ms < 100 ? 1 : 0);
}

std::string cell_svg(const observe::Spread& spread, std::size_t first, std::size_t last,
                     double step_ms, Spot corner, Spot size, const char* column) {
  const auto begin = spread.ranks.begin();
  const auto most = std::max_element(begin + static_cast<std::ptrdiff_t>(first),
                                     begin + static_cast<std::ptrdiff_t>(last));
  // A fifth of a step more than the usual rank is the deepest colour.
  const double excess = (*most - spread.median_ms) / (0.2 * step_ms);
  const double depth = std::clamp(std::abs(excess), 0.0, 1.0);
  return fmt::format(
      "<g><title>rank {}, {}: {:.3f} ms a step, median {:.3f}</title>"
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" "
      "fill-opacity=\"{:.2f}\"/>{}</g>\n",
      most - begin, column, *most, spread.median_ms, corner.x, corner.y, size.x, size.y,
      colour_of(excess > 0 ? 2 : 0), 0.06 + 0.64 * depth,
      text_at(corner.x + size.x / 2, corner.y + size.y - 6, cell_text(*most), "middle", ink));
}

std::string heat_map(const observe::RanksRecord& ranks) {
  const std::size_t world = ranks.forward.ranks.size();
  const std::size_t each = (world + most_rows - 1) / most_rows, rows = (world + each - 1) / each;
  constexpr double first_x = 74, line = 25, first_y = 34;
  const double width = (picture_width - first_x - 4) / static_cast<double>(std::size(columns));
  const double step_ms = step_ms_of(ranks);
  std::string svg =
      open_svg("Ranks and the parts of a step", first_y + line * static_cast<double>(rows) + 6);
  for (std::size_t c = 0; c < std::size(columns); ++c)
    svg += text_at(first_x + (static_cast<double>(c) + 0.5) * width, 22, columns[c].short_name);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t first = row * each, last = std::min(world, first + each);
    const double y = first_y + line * static_cast<double>(row);
    svg += text_at(
        first_x - 8, y + line - 8,
        each == 1 ? fmt::format("rank {}", first) : fmt::format("{}-{}", first, last - 1), "end");
    for (std::size_t c = 0; c < std::size(columns); ++c) {
      const observe::Spread& spread = ranks.*columns[c].ranks;
      if (spread.ranks.size() != world) continue;  // older programs had no other_ms
      svg += cell_svg(spread, first, last, step_ms,
                      {first_x + static_cast<double>(c) * width + 1, y + 1}, {width - 2, line - 2},
                      columns[c].short_name);
    }
  }
  return svg + "</svg>\n";
}

std::string host_of(const RunStory& run, std::size_t rank) {
  for (const observe::RankBinding& one : run.bindings)
    if (one.rank == static_cast<int>(rank)) return " on " + one.host;
  return "";
}

}  // namespace

std::vector<Block> ranks_section(const RunStory& run) {
  if (!run.ranks || run.ranks->forward.ranks.empty()) return {};
  const std::size_t world = run.ranks->forward.ranks.size();
  std::string caption = fmt::format(
      "Milliseconds a step of each rank, means of {}. Red: more than the median rank, blue: "
      "less. fwd, bwd: forward, backward; comm: communication that backward did not hide.",
      counted(run.ranks->steps, "step"));
  if (world > most_rows) caption += " A row has several ranks, and shows the slowest.";
  std::vector<Block> blocks = {Figure{"ranks", heat_map(*run.ranks), caption}};
  std::vector<std::string> late;
  // The limit of the warnings while a run goes.
  for (const observe::Straggler& one : observe::find_stragglers(times_of(*run.ranks), 0.2))
    late.push_back(fmt::format(
        "rank {}{} makes the others wait {:.2f} ms in each step, in {}: it takes {:.2f} ms there, "
        "the usual rank {:.2f}",
        one.rank, host_of(run, one.rank), one.late_ms, to_string(one.phase), one.phase_ms,
        one.usual_phase_ms));
  if (const auto data = observe::find_data_limit(times_of(*run.ranks), 0.1))
    late.push_back(fmt::format("data limits all ranks: rank {} waits {:.2f} ms of a step's {:.2f}",
                               data->rank, data->wait_ms, data->step_ms));
  if (late.empty() && world > 1)
    late.push_back("no rank makes the others wait for more than a fifth of a step");
  if (!late.empty()) blocks.push_back(Items{late});
  return blocks;
}

}  // namespace lockstep::study
