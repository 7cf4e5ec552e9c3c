#include "app/start/check_nodes.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "app/start/compute.hpp"
#include "app/start/traps_here.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/table.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"
#include "lockstep/cluster/nodes/node_measure.hpp"
#include "lockstep/cluster/topology/machine.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/comm/worlds/link_probe.hpp"

namespace lockstep::app {
namespace {

// With a second for the cores and the disk's time limit, this stays below 15 s for any world. Slow
// links may leave no time for others.
constexpr std::size_t most_rounds = 16;
constexpr double link_s = 0.3;
constexpr double last_link_s = 10, deadline_s = 15;

/// What was measured on each node, by its number, on rank 0; nothing on the others.
std::vector<cluster::NodeFigures> gather_figures(Launch& launch, const cluster::NodeFigures& mine) {
  const auto of_rank =
      comm::gather_records_at_root(*launch.control, mine, "preflight of the nodes");
  std::vector<cluster::NodeFigures> figures;
  for (std::size_t node = 0; node < launch.nodes.count() && !of_rank.empty(); ++node) {
    std::vector<cluster::NodeFigures> ranks;
    for (const int rank : launch.nodes.ranks_of(node))
      ranks.push_back(of_rank[static_cast<std::size_t>(rank)]);
    figures.push_back(cluster::combine(ranks));
  }
  return figures;
}

/// Measures each link once while there is time; of many rounds it takes an evenly spread part. All
/// ranks call it; ranks that do not lead a node have nothing to do. Rank 0 gets all figures.
std::vector<cluster::LinkFigures> measure_links(Launch& launch, double began_s) {
  const std::size_t count = launch.nodes.count();
  const std::size_t mine = launch.nodes.node_of(launch.rank.rank);
  const bool leads = launch.nodes.leads_node(launch.rank.rank);
  const std::size_t all = cluster::tournament_rounds(count), rounds = std::min(all, most_rounds);
  std::vector<cluster::LinkFigures> measured;
  if (rounds > 0) {
    const double left_s = std::max(deadline_s - (now_s() - began_s), 1.0);
    const auto probe = comm::make_link_probe(connect_cpus(launch, left_s));
    for (std::size_t i = 0; i < rounds && leads; ++i) {
      const auto partner = cluster::partner_in(i * all / rounds, mine, count);
      if (!partner) continue;
      const bool has_time = now_s() - began_s < last_link_s;
      const auto rate = probe->measure(launch.nodes.ranks_of(*partner).front(), link_s, has_time);
      if (rate && mine < *partner)
        measured.push_back({mine, *partner, rate->bytes_per_s, rate->round_trip_s});
    }
  }
  std::vector<cluster::LinkFigures> links;
  for (const auto& of_rank :
       comm::gather_records_at_root(*launch.control, measured, "preflight of the network"))
    links.insert(links.end(), of_rank.begin(), of_rank.end());
  return links;
}

std::string best_link(const std::vector<cluster::LinkFigures>& links, std::size_t node) {
  double rate = 0;
  for (const cluster::LinkFigures& link : links)
    if (link.a == node || link.b == node) rate = std::max(rate, link.bytes_per_s);
  return rate > 0 ? human_bytes(rate) + "/s" : "-";
}

std::string disk_cell(const cluster::NodeFigures& node) {
  if (!node.disk) return "-";
  return node.disk->error.empty() ? human_bytes(node.disk->write_bytes_per_s) + "/s" : "fails";
}

std::string table_of(const std::vector<cluster::NodeFigures>& nodes,
                     const std::vector<cluster::LinkFigures>& links,
                     const cluster::NodeFindings& findings) {
  std::vector<std::vector<std::string>> rows{
      {"node", "a core", "of the cores", "memory copies", "disk", "best link", "verdict"}};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const cluster::NodeFigures& node = nodes[i];
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

void say(const std::vector<cluster::NodeFigures>& nodes,
         const std::vector<cluster::LinkFigures>& links, const cluster::NodeFindings& findings,
         double seconds) {
  log::text(table_of(nodes, links, findings));
  if (const std::size_t all = nodes.size() * (nodes.size() - 1) / 2; links.size() < all)
    log::info(fmt::format("of the network's {} links {} were measured in the time available", all,
                          links.size()));
  for (const std::string& finding : findings.findings) log::warn(finding);
  log::info(
      fmt::format("preflight of {} took {:.1f} s: {}", counted(nodes.size(), "node"), seconds,
                  findings.exclude.empty()
                      ? findings.findings.empty() ? "nothing unusual" : "no node should be left out"
                      : "leave out --exclude=" + cluster::compress_hosts(findings.exclude)));
}

}  // namespace

NodeCheck check_nodes(Launch& launch, const NodeCheckSpec& spec) {
  const double began_s = now_s();
  const cluster::Machine machine = cluster::look_at_machine();
  const cluster::Plan plan = plan_rank(launch, machine, 0, "").plan;
  launch.control->barrier("preflight");
  cluster::NodeFigures mine = cluster::measure_cores(plan.compute);
  mine.host = launch.nodes.name_of(launch.nodes.node_of(launch.rank.rank));
  const cluster::NodeLook look = look_at_launch(launch);
  if (launch.nodes.leads_node(launch.rank.rank)) {
    mine.facts = cluster::node_facts(machine, look, spec.paths);
    mine.disk = cluster::measure_disk(spec.directory);
  }
  const std::vector<cluster::NodeFigures> nodes = gather_figures(launch, mine);
  const std::vector<cluster::LinkFigures> links = measure_links(launch, began_s);
  const auto traps = traps_of_nodes(launch, look, cluster::TrapScope::all);
  std::string exclude, json;
  if (launch.rank.rank == 0) {
    cluster::NodeFindings findings = cluster::judge_nodes(nodes, links);
    findings.findings.insert(findings.findings.end(), traps.begin(), traps.end());
    say(nodes, links, findings, now_s() - began_s);
    exclude = cluster::compress_hosts(findings.exclude);
    json = cluster::to_json(nodes, links, findings);
  }
  exclude = launch.control->broadcast(exclude, "preflight");
  require(!spec.require || exclude.empty(),
          fmt::format("the preflight would leave out --exclude={} (--require-preflight makes this "
                      "an error)",
                      exclude));
  return {exclude.empty(), json};
}

}  // namespace lockstep::app
