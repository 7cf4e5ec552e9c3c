#include "lockstep/cluster/nodes/node_measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"

namespace lockstep::cluster {
namespace {

// As parts of the others' figures. Equal nodes differ by a few per cent in arithmetic, by ten or
// twenty in memory, and by much when others use the same disk or cores at the same time.
constexpr double least_flops = 0.75, least_share = 0.6, least_copy = 0.6, least_memory = 0.9,
                 least_disk = 0.2, least_link = 0.4;
constexpr double longest_round_trip = 5;
// When cores are shared, a round trip may take a time slice.
constexpr double least_delay_s = 2e-3;
// A disk that writes faster than this slows no training, however fast the others are.
constexpr double fast_disk_bytes_per_s = 100e6;
constexpr double least_free_bytes = 1e9;
// Slower than the slowest network that clusters are built with.
constexpr double least_network_bytes_per_s = 50e6;

class Judge {
 public:
  Judge(const std::vector<NodeFigures>& nodes, const std::vector<LinkFigures>& links)
      : nodes_(nodes), links_(links) {}

  NodeFindings verdict() {
    using N = NodeFigures;
    const auto rate = [](const char* unit, double scale) {
      return [=](double value) { return fmt::format("{:.1f} {}", value / scale, unit); };
    };
    compare(
        "arithmetic", least_flops, [](const N& n) { return n.flops_per_s; },
        rate("Gflop/s per core", 1e9));
    compare(
        "the measuring threads got", least_share, [](const N& n) { return n.cpu_share; },
        [](double share) { return fmt::format("{:.0f} % of their cores", 100 * share); });
    compare(
        "memory copies", least_copy, [](const N& n) { return n.copy_bytes_per_s; },
        rate("GB/s", 1e9));
    compare(
        "memory", least_memory, [](const N& n) { return n.memory_bytes; }, rate("GB", 1e9));
    judge_disks();
    judge_facts();
    judge_links();
    result_.exclude = sorted_hosts({excluded_.begin(), excluded_.end()});
    return std::move(result_);
  }

 private:
  void exclude(const NodeFigures& node, const std::string& why) {
    result_.findings.push_back(fmt::format("{}: {}", node.host, why));
    excluded_.insert(node.host);
  }

  void compare(const char* what, double least,
               const std::function<double(const NodeFigures&)>& value,
               const std::function<std::string(double)>& show) {
    for (const NodeFigures& node : nodes_) {
      std::vector<double> others;
      for (const NodeFigures& other : nodes_)
        if (&other != &node) others.push_back(value(other));
      if (others.empty()) return;
      const double usual = upper_median(std::move(others));
      if (value(node) < least * usual)
        exclude(node,
                fmt::format("{} {}, on the other nodes {}", what, show(value(node)), show(usual)));
    }
  }

  void judge_disks() {
    const auto broken = [](const NodeFigures& node) {
      return node.disk && !node.disk->error.empty();
    };
    const bool all = std::all_of(nodes_.begin(), nodes_.end(), broken);
    std::vector<double> rates;
    for (const NodeFigures& node : nodes_)
      if (node.disk && !broken(node)) rates.push_back(node.disk->write_bytes_per_s);
    for (const NodeFigures& node : nodes_) {
      if (!node.disk) continue;
      const DiskFigures& disk = *node.disk;
      if (broken(node) && all)
        result_.findings.push_back(fmt::format("{}: {}", node.host, disk.error));
      else if (broken(node))
        exclude(node, disk.error);
      else if (disk.write_bytes_per_s <
               std::min(fast_disk_bytes_per_s, least_disk * upper_median(rates)))
        exclude(node,
                fmt::format("the disk writes {}/s, the others {}/s",
                            human_bytes(disk.write_bytes_per_s), human_bytes(upper_median(rates))));
      else if (disk.free_bytes < least_free_bytes)
        result_.findings.push_back(
            fmt::format("{}: only {} of disk is free", node.host, human_bytes(disk.free_bytes)));
    }
  }

  void judge_facts() {
    std::set<std::string> keys;
    for (const NodeFigures& node : nodes_)
      for (const auto& [key, value] : node.facts) keys.insert(key);
    for (const std::string& key : keys) compare_fact(key);
  }

  void compare_fact(const std::string& key) {
    std::map<std::string, std::vector<const NodeFigures*>> nodes_with;
    for (const NodeFigures& node : nodes_) {
      const auto fact = node.facts.find(key);
      nodes_with[fact == node.facts.end() ? "none" : fact->second].push_back(&node);
    }
    if (nodes_with.size() < 2) return;
    for (const auto& [usual, most] : nodes_with) {
      if (2 * most.size() <= nodes_.size()) continue;
      for (const auto& [value, nodes] : nodes_with)
        for (const NodeFigures* node : nodes)
          if (value != usual)
            exclude(*node,
                    fmt::format("{} {}, on {} other nodes {}", key, value, most.size(), usual));
      return;
    }
    std::vector<std::string> camps;
    for (const auto& [value, nodes] : nodes_with) camps.push_back(value + " on " + hosts(nodes));
    result_.findings.push_back(fmt::format("{}: {}", key, join(camps, ", ")));
  }

  static std::string hosts(const std::vector<const NodeFigures*>& nodes) {
    std::vector<std::string> names;
    for (const NodeFigures* node : nodes) names.push_back(node->host);
    return compress_hosts(sorted_hosts(names));
  }

  /// Finds the usual figures of a good node's link. A good node has a good link to some other node,
  /// so only the best link of each node counts: one bad node of three slows two of three links.
  void usual_link() {
    std::vector<double> rates, trips;
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
      double rate = 0, trip = 1e9;
      for (const LinkFigures& link : links_)
        if (link.a == node || link.b == node) {
          rate = std::max(rate, link.bytes_per_s);
          trip = std::min(trip, link.round_trip_s);
        }
      if (rate == 0) continue;
      rates.push_back(rate);
      trips.push_back(-trip);
    }
    usual_rate_ = upper_median(std::move(rates));
    usual_trip_s_ = -upper_median(std::move(trips));
  }

  bool is_slow(const LinkFigures& link) const {
    return link.bytes_per_s < least_link * usual_rate_ ||
           link.round_trip_s >
               std::max(longest_round_trip * usual_trip_s_, usual_trip_s_ + least_delay_s);
  }

  static std::string show(double rate, double trip_s) {
    return fmt::format("{}/s, {:.2f} ms there and back", human_bytes(rate), 1e3 * trip_s);
  }

  /// Excludes the node with the most slow links first. Its links then no longer count against its
  /// partners.
  void judge_links() {
    if (links_.empty()) return;
    usual_link();
    std::vector<const LinkFigures*> slow;
    for (const LinkFigures& link : links_)
      if (is_slow(link)) slow.push_back(&link);
    while (blame_one(slow)) {
    }
    for (const LinkFigures* link : slow)
      result_.findings.push_back(fmt::format(
          "between {} and {}: {}; elsewhere {}", nodes_[link->a].host, nodes_[link->b].host,
          show(link->bytes_per_s, link->round_trip_s), show(usual_rate_, usual_trip_s_)));
    if (usual_rate_ < least_network_bytes_per_s)
      result_.findings.push_back(
          fmt::format("between all nodes: {}: slow for a cluster's network. Is it the right "
                      "one (OMPI_MCA_btl_tcp_if_include, UCX_NET_DEVICES)?",
                      show(usual_rate_, usual_trip_s_)));
  }

  bool blame_one(std::vector<const LinkFigures*>& slow) {
    std::vector<std::size_t> slow_of(nodes_.size(), 0), all_of(nodes_.size(), 0);
    for (const LinkFigures& link : links_)
      for (const std::size_t node : {link.a, link.b})
        all_of[node] += excluded_by_link_.count(link.a + link.b - node) == 0 ? 1 : 0;
    for (const LinkFigures* link : slow)
      for (const std::size_t node : {link->a, link->b}) ++slow_of[node];
    const auto worst = static_cast<std::size_t>(std::max_element(slow_of.begin(), slow_of.end()) -
                                                slow_of.begin());
    // With one slow link, a node is as suspect as its partner: only the link is named.
    if (slow_of[worst] < 2 || 2 * slow_of[worst] <= all_of[worst]) return false;
    double rate = 0, trip_s = 1e9;
    for (const LinkFigures* link : slow)
      if (link->a == worst || link->b == worst) {
        rate = std::max(rate, link->bytes_per_s);
        trip_s = std::min(trip_s, link->round_trip_s);
      }
    exclude(nodes_[worst],
            fmt::format("{} of its {} links are slow: at best {}; elsewhere {}", slow_of[worst],
                        all_of[worst], show(rate, trip_s), show(usual_rate_, usual_trip_s_)));
    excluded_by_link_.insert(worst);
    std::erase_if(slow,
                  [&](const LinkFigures* link) { return link->a == worst || link->b == worst; });
    return true;
  }

  const std::vector<NodeFigures>& nodes_;
  const std::vector<LinkFigures>& links_;
  double usual_rate_ = 0, usual_trip_s_ = 0;
  std::set<std::string> excluded_;
  std::set<std::size_t> excluded_by_link_;
  NodeFindings result_;
};

}  // namespace

NodeFindings judge_nodes(const std::vector<NodeFigures>& nodes,
                         const std::vector<LinkFigures>& links) {
  return Judge(nodes, links).verdict();
}

std::string to_json(const std::vector<NodeFigures>& nodes, const std::vector<LinkFigures>& links,
                    const NodeFindings& findings) {
  using Json = nlohmann::ordered_json;
  Json json = {{"nodes", Json::array()}, {"links", Json::array()}};
  for (const NodeFigures& node : nodes) json["nodes"].push_back(Json::parse(fields_to_json(node)));
  for (const LinkFigures& link : links)
    json["links"].push_back({{"nodes", {nodes[link.a].host, nodes[link.b].host}},
                             {"bytes_per_s", link.bytes_per_s},
                             {"round_trip_s", link.round_trip_s}});
  json["findings"] = findings.findings;
  json["exclude"] = findings.exclude;
  return json_text(json, 2) + "\n";
}

}  // namespace lockstep::cluster
