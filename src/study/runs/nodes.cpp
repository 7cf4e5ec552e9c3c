#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/join.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
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

}  // namespace lockstep::study
