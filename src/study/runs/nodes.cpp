#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/observe/rank_times.hpp"
#include "study/page/plot.hpp"
#include "study/runs/story.hpp"

namespace lockstep::study {
namespace {

using observe::RankBinding;

/// What a processor does for the rank that has it.
struct Processor {
  const RankBinding* rank = nullptr;
  bool computes = false;
};

/// Ranks of a node by local number; nodes that look alike are drawn once.
struct NodeKind {
  std::vector<std::string> hosts;
  std::vector<const RankBinding*> ranks;
};

std::string look_of(const std::vector<const RankBinding*>& ranks) {
  std::string look;
  for (const RankBinding* rank : ranks)
    look += fmt::format("{}|{}|{}|{}|{}|{};", rank->local_rank, rank->share, rank->numa_node,
                        join(rank->compute, " "), rank->loader, rank->gpu);
  return look;
}

std::vector<NodeKind> kinds_of(const std::vector<RankBinding>& bindings) {
  std::vector<std::string> hosts;
  std::map<std::string, std::vector<const RankBinding*>> by_host;
  for (const RankBinding& rank : bindings) {
    auto& ranks = by_host[rank.host];
    if (ranks.empty()) hosts.push_back(rank.host);
    ranks.push_back(&rank);
  }
  std::vector<NodeKind> kinds;
  for (const std::string& host : hosts) {
    auto& ranks = by_host[host];
    std::ranges::stable_sort(ranks, {}, &RankBinding::local_rank);
    const auto same = std::ranges::find_if(
        kinds, [&](const NodeKind& kind) { return look_of(kind.ranks) == look_of(ranks); });
    if (same == kinds.end())
      kinds.push_back({{host}, ranks});
    else
      same->hosts.push_back(host);
  }
  return kinds;
}

/// The processors of each NUMA node, by number; -1: of ranks whose share spans several.
std::map<int, std::map<int, Processor>> processors_of(const NodeKind& kind) {
  std::map<int, std::map<int, Processor>> nodes;
  for (const RankBinding* rank : kind.ranks) {
    auto& node = nodes[rank->numa_node];
    for (const int cpu : cluster::parse_cpus(rank->share)) node[cpu] = {rank, false};
    for (const int cpu : cluster::parse_cpus(rank->loader)) node[cpu].rank = rank;
    for (const std::string& thread : rank->compute)
      for (const int cpu : cluster::parse_cpus(thread)) node[cpu] = {rank, true};
  }
  return nodes;
}

constexpr double cell = 20, margin = 16;
constexpr std::size_t cells_of_line = 22;

/// Draws downward from y, which moves on.
struct NodePicture {
  std::string svg;
  double y = 26;

  void say(const std::string& text, const char* colour) {
    svg += text_at(margin, y, text, "start", colour);
    y += 12;
  }
  void processors(const std::map<int, Processor>& all) {
    std::size_t k = 0;
    for (const auto& [cpu, one] : all) {
      if (k > 0 && k % cells_of_line == 0) y += cell;
      const double x = margin + cell * static_cast<double>(k % cells_of_line);
      svg += fmt::format(
          "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"17\" height=\"17\" rx=\"3\" fill=\"{}\" "
          "fill-opacity=\"{}\"><title>CPU {}: rank {}, {}</title></rect>\n",
          x, y, colour_of(static_cast<std::size_t>(std::max(0, one.rank->local_rank))),
          one.computes ? "1" : "0.35", cpu, one.rank->rank,
          one.computes ? "computes" : "loads data, or is spare");
      ++k;
    }
    y += cell + 24;
  }
  void rank(const RankBinding& one, bool many_nodes) {
    svg += box_at({margin, y - 12}, {14, 14},
                  colour_of(static_cast<std::size_t>(std::max(0, one.local_rank))));
    std::string text = many_nodes ? fmt::format("local rank {}", one.local_rank)
                                  : fmt::format("rank {}", one.rank);
    text += one.share.empty() ? "" : ": CPUs " + one.share;
    if (text.size() > 44) text = text.substr(0, 41) + "...";
    if (!one.gpu.empty()) text += ", GPU " + one.gpu;
    svg += text_at(margin + 22, y, text, "start", ink);
    y += 24;
  }
};

Figure figure_of(const NodeKind& kind) {
  NodePicture picture;
  const std::size_t others = kind.hosts.size() - 1;
  picture.say(others == 0
                  ? kind.hosts.front()
                  : fmt::format("{} and {} like it", kind.hosts.front(), counted(others, "node")),
              ink);
  picture.y += 14;
  for (const auto& [number, processors] : processors_of(kind)) {
    if (processors.empty()) continue;
    picture.say(number < 0 ? "more than one NUMA node" : fmt::format("NUMA node {}", number),
                soft_ink);
    picture.processors(processors);
  }
  constexpr std::size_t most_ranks = 24;
  for (std::size_t k = 0; k < std::min(kind.ranks.size(), most_ranks); ++k)
    picture.rank(*kind.ranks[k], others > 0);
  if (kind.ranks.size() > most_ranks)
    picture.say(fmt::format("and {} more", counted(kind.ranks.size() - most_ranks, "rank")),
                soft_ink);
  std::string title = "Processors and ranks of " + kind.hosts.front();
  return {"node-" + kind.hosts.front(), open_svg(title, picture.y) + picture.svg + "</svg>\n",
          "Processors by rank: full colour computes, pale colour loads data or is spare."};
}

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

std::vector<Block> nodes_section(const RunStory& run) {
  constexpr std::size_t most_kinds = 4;
  std::vector<Block> blocks;
  std::vector<std::string> remarks;
  try {
    const std::vector<NodeKind> kinds = kinds_of(run.bindings);
    for (std::size_t k = 0; k < std::min(kinds.size(), most_kinds); ++k)
      blocks.push_back(figure_of(kinds[k]));
    if (kinds.size() > most_kinds)
      remarks.push_back(
          fmt::format("nodes are bound in {} ways; {} are shown", kinds.size(), most_kinds));
  } catch (const InputError& error) {
    remarks.push_back(fmt::format("binding.json: {}", error.what()));
  }
  for (const RankBinding& rank : run.bindings) {
    if (remarks.size() == 8) break;
    if (rank.read_back)
      for (const std::string& failure : rank.read_back->failures)
        remarks.push_back(fmt::format("rank {} on {}: {}", rank.rank, rank.host, failure));
  }
  for (const std::string& line : observe::slow_uploads(run.bindings)) remarks.push_back(line);
  if (!remarks.empty()) blocks.push_back(Items{remarks});
  return blocks;
}

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
