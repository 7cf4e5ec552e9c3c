#include "node_check.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/core.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/sys/hostlist.hpp"
#include "lockstep/sys/node_check.hpp"
#include "placement.hpp"
#include "table.hpp"

namespace lockstep::app {
namespace {

// With the second that cores take, and the disk's patience, this stays below 15 s for any world;
// links that are slow themselves may leave no time for others.
constexpr std::size_t most_rounds = 16;
constexpr double link_s = 0.3;
constexpr double last_link_s = 10, deadline_s = 15;

/// The nodes of the world, in the order of their first ranks.
struct Nodes {
  std::vector<sys::NodeFigures> figures;
  std::vector<int> leaders;        ///< the first rank of each
  std::optional<std::size_t> led;  ///< by this rank
};

/// The scheduler's name of a node may differ from what the node calls itself.
std::string node_name(const sys::RankInfo& rank) {
  return sys::process_environment()("SLURMD_NODENAME").value_or(rank.host);
}

Nodes gather(Launch& launch, const sys::NodeFigures& mine) {
  const auto texts = launch.control->gather(to_text(mine), "preflight of the nodes");
  std::vector<std::string> hosts;
  std::vector<std::vector<sys::NodeFigures>> ranks;
  Nodes nodes;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    sys::NodeFigures figures = sys::parse_node_figures(texts[rank]);
    const auto node = static_cast<std::size_t>(std::find(hosts.begin(), hosts.end(), figures.host) -
                                               hosts.begin());
    if (node == hosts.size()) {
      hosts.push_back(figures.host);
      ranks.emplace_back();
      nodes.leaders.push_back(static_cast<int>(rank));
      if (static_cast<int>(rank) == launch.rank.rank) nodes.led = node;
    }
    ranks[node].push_back(std::move(figures));
  }
  for (const auto& of_node : ranks) nodes.figures.push_back(sys::combine(of_node));
  return nodes;
}

/// Each link once, as far as there is time: of many rounds an evenly spread part. All ranks call
/// it; those that lead no node have nothing to do.
std::vector<sys::LinkFigures> measure_links(Launch& launch, const Nodes& nodes, double began_s) {
  const std::size_t count = nodes.leaders.size();
  const std::size_t all = sys::tournament_rounds(count), rounds = std::min(all, most_rounds);
  std::string mine;
  if (rounds > 0 && launch.world) {
    const double left_s = std::max(deadline_s - (now_s() - began_s), 1.0);
    const auto probe = launch.world->make_link_probe(left_s);
    for (std::size_t i = 0; i < rounds && nodes.led; ++i) {
      const auto partner = sys::partner_in(i * all / rounds, *nodes.led, count);
      if (!partner) continue;
      const bool has_time = now_s() - began_s < last_link_s;
      const auto rate = probe->measure(nodes.leaders[*partner], link_s, has_time);
      if (rate && *nodes.led < *partner)
        mine += fmt::format("{} {} {} {}\n", *nodes.led, *partner, rate->bytes_per_s,
                            rate->round_trip_s);
    }
  }
  std::vector<sys::LinkFigures> links;
  for (const std::string& text : launch.control->gather(mine, "preflight of the network")) {
    std::istringstream lines(text);
    for (sys::LinkFigures link; lines >> link.a >> link.b >> link.bytes_per_s >> link.round_trip_s;)
      links.push_back(link);
  }
  return links;
}

std::string best_link(const std::vector<sys::LinkFigures>& links, std::size_t node) {
  double rate = 0;
  for (const sys::LinkFigures& link : links)
    if (link.a == node || link.b == node) rate = std::max(rate, link.bytes_per_s);
  return rate > 0 ? human_bytes(rate) + "/s" : "-";
}

std::string disk_cell(const sys::NodeFigures& node) {
  if (!node.disk) return "-";
  return node.disk->error.empty() ? human_bytes(node.disk->write_bytes_per_s) + "/s" : "fails";
}

std::string table_of(const Nodes& nodes, const std::vector<sys::LinkFigures>& links,
                     const sys::NodeFindings& findings) {
  std::vector<std::vector<std::string>> rows{
      {"node", "a core", "of the cores", "memory copies", "disk", "best link", "verdict"}};
  for (std::size_t i = 0; i < nodes.figures.size(); ++i) {
    const sys::NodeFigures& node = nodes.figures[i];
    const bool bad = std::find(findings.exclude.begin(), findings.exclude.end(), node.host) !=
                     findings.exclude.end();
    rows.push_back({node.host, fmt::format("{:.1f} Gflop/s", node.flops_per_s / 1e9),
                    fmt::format("{:.0f} %", 100 * node.cpu_share),
                    human_bytes(node.copy_bytes_per_s) + "/s", disk_cell(node), best_link(links, i),
                    bad ? "EXCLUDE" : "good"});
  }
  std::string text = table(rows);
  text.pop_back();
  return text;
}

void say(const Nodes& nodes, const std::vector<sys::LinkFigures>& links,
         const sys::NodeFindings& findings, double seconds, bool has_mpi) {
  log::info(table_of(nodes, links, findings));
  if (nodes.leaders.size() > 1 && !has_mpi)
    log::info("the network between the nodes was not measured: that takes MPI");
  if (const std::size_t all = nodes.leaders.size() * (nodes.leaders.size() - 1) / 2;
      has_mpi && links.size() < all)
    log::info(fmt::format("of the network's {} links {} were measured, as there was time for", all,
                          links.size()));
  for (const std::string& finding : findings.findings) log::warn(finding);
  log::info(fmt::format(
      "preflight of {} node(s) took {:.1f} s: {}", nodes.leaders.size(), seconds,
      findings.exclude.empty()
          ? findings.findings.empty() ? "nothing stands out" : "no node is to be left out"
          : "leave out --exclude=" + sys::compress_hosts(findings.exclude)));
}

}  // namespace

NodeCheck check_nodes(Launch& launch, const NodeCheckSpec& spec) {
  const double began_s = now_s();
  const sys::Machine machine = sys::look_at_machine();
  const sys::Plan plan = plan_rank(launch, machine, 0, "").plan;
  launch.control->barrier("preflight");
  sys::NodeFigures mine = sys::measure_cores(plan.compute);
  mine.host = node_name(launch.rank);
  if (launch.rank.local_rank == 0) {
    mine.facts = sys::node_facts(machine, spec.paths);
    mine.disk = sys::measure_disk(spec.directory);
  }
  const Nodes nodes = gather(launch, mine);
  const std::vector<sys::LinkFigures> links = measure_links(launch, nodes, began_s);
  const sys::NodeFindings findings = sys::judge_nodes(nodes.figures, links);
  if (launch.rank.rank == 0)
    say(nodes, links, findings, now_s() - began_s, launch.world != nullptr);
  require(!spec.require || findings.exclude.empty(),
          fmt::format("the preflight would leave out --exclude={} (--require-preflight makes this "
                      "an error)",
                      sys::compress_hosts(findings.exclude)));
  return {findings.exclude.empty(), sys::to_json(nodes.figures, links, findings)};
}

}  // namespace lockstep::app
