#include "lockstep/cluster/binding_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/json_text.hpp"

namespace lockstep::cluster {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const Plan& plan, const RankInfo& rank) {
  Json compute = Json::array();
  for (const CpuSet& thread : plan.compute) compute.push_back(to_string(thread));
  return {{"rank", rank.rank},
          {"world", rank.world},
          {"local_rank", rank.local_rank},
          {"local_size", rank.local_size},
          {"host", rank.host},
          {"authority", to_string(rank.authority)},
          {"ignored", rank.ignored},
          {"share", to_string(plan.share)},
          {"numa_node", plan.numa_node},
          {"compute", std::move(compute)},
          {"loader", to_string(plan.loader)},
          {"loader_shares_cores", plan.loader_shares_cores},
          {"gpu", plan.gpu_pci_bus_id},
          {"network", plan.network},
          {"remarks", plan.remarks},
          {"ok", nullptr}};
}

}  // namespace

std::string describe(const BindingReport& report, const RankInfo& rank) {
  const Plan& plan = report.plan;
  CpuSet compute;
  for (const CpuSet& thread : plan.compute) compute = joined(compute, thread);
  std::string line = fmt::format(
      "rank {} on {}: CPUs {}, {}{}, {} compute thread(s) on {}, loader on {}{}: {}", rank.rank,
      rank.host, to_string(report.process_cpus),
      plan.numa_node < 0 ? "several NUMA nodes" : fmt::format("NUMA node {}", plan.numa_node),
      plan.gpu_pci_bus_id.empty() ? "" : ", GPU " + plan.gpu_pci_bus_id, plan.compute.size(),
      to_string(compute), to_string(plan.loader), plan.loader_shares_cores ? " (shared)" : "",
      report.ok ? "PASS" : "FAIL");
  for (const std::string& failure : report.failures) line += "; " + failure;
  for (const std::string& remark : plan.remarks) line += "; " + remark;
  return line;
}

std::string to_json(const BindingReport& report, const RankInfo& rank) {
  Json json = as_json(report.plan, rank);
  json["process_cpus"] = to_string(report.process_cpus);
  json["memory_node"] = report.memory_node;
  json["threads"] = report.threads;
  json["pages"] = Json::object();
  for (const auto& [what, nodes] : report.pages)
    for (const auto& [node, count] : nodes)
      json["pages"][what][node < 0 ? "unknown" : std::to_string(node)] = count;
  json["upload_bytes_per_s"] =
      report.upload_bytes_per_s ? Json(*report.upload_bytes_per_s) : Json(nullptr);
  json["ok"] = report.ok;
  json["failures"] = report.failures;
  return json_text(json, 2);
}

std::string to_json(const Plan& plan, const RankInfo& rank) {
  return json_text(as_json(plan, rank), 2);
}

std::vector<std::string> slow_uploads(const std::vector<std::string>& reports) {
  std::vector<Json> ranks;
  double fastest = 0;
  for (const std::string& report : reports) {
    ranks.push_back(Json::parse(report));
    if (const Json& rate = ranks.back()["upload_bytes_per_s"]; rate.is_number())
      fastest = std::max(fastest, rate.get<double>());
  }
  std::vector<std::string> lines;
  for (const Json& rank : ranks)
    if (const Json& rate = rank["upload_bytes_per_s"];
        rate.is_number() && rate.get<double>() < fastest / 2)
      lines.push_back(fmt::format(
          "rank {} on {} copies to its GPU {} at {:.1f} GB/s, but the fastest rank at {:.1f}",
          rank["rank"].dump(), rank["host"].get<std::string>(), rank["gpu"].get<std::string>(),
          rate.get<double>() / 1e9, fastest / 1e9));
  return lines;
}

}  // namespace lockstep::cluster
