#include "lockstep/cluster/nodes/node_report.hpp"

#include <nlohmann/json.hpp>

#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/base/text/json_text.hpp"

namespace lockstep::cluster {
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
