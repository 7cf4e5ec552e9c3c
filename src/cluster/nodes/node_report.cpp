#include "lockstep/cluster/nodes/node_report.hpp"

#include <nlohmann/json.hpp>

#include "lockstep/base/text/json_text.hpp"

namespace lockstep::cluster {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const NodeFigures& node) {
  Json json = {{"host", node.host},
               {"flops_per_s", node.flops_per_s},
               {"cpu_share", node.cpu_share},
               {"copy_bytes_per_s", node.copy_bytes_per_s},
               {"memory_bytes", node.memory_bytes},
               {"disk", nullptr},
               {"facts", node.facts}};
  if (node.disk)
    json["disk"] = {{"write_bytes_per_s", node.disk->write_bytes_per_s},
                    {"free_bytes", node.disk->free_bytes},
                    {"error", node.disk->error}};
  return json;
}

}  // namespace

std::string to_json(const std::vector<NodeFigures>& nodes, const std::vector<LinkFigures>& links,
                    const NodeFindings& findings) {
  Json json = {{"nodes", Json::array()}, {"links", Json::array()}};
  for (const NodeFigures& node : nodes) json["nodes"].push_back(as_json(node));
  for (const LinkFigures& link : links)
    json["links"].push_back({{"nodes", {nodes[link.a].host, nodes[link.b].host}},
                             {"bytes_per_s", link.bytes_per_s},
                             {"round_trip_s", link.round_trip_s}});
  json["findings"] = findings.findings;
  json["exclude"] = findings.exclude;
  return json_text(json, 2) + "\n";
}

}  // namespace lockstep::cluster
