#include "lockstep/observe/binding_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::observe {

RankBinding rank_binding(const cluster::Plan& plan, const cluster::RankInfo& rank) {
  RankBinding binding{.rank = rank.rank,
                      .world = rank.world,
                      .local_rank = rank.local_rank,
                      .local_size = rank.local_size,
                      .host = rank.host,
                      .authority = to_string(rank.authority),
                      .ignored = rank.ignored,
                      .share = cluster::to_string(plan.share),
                      .numa_node = plan.numa_node,
                      .compute = {},
                      .loader = cluster::to_string(plan.loader),
                      .loader_shares_cores = plan.loader_shares_cores,
                      .gpu = plan.gpu_pci_bus_id,
                      .network = plan.network,
                      .remarks = plan.remarks,
                      .ok = std::nullopt,
                      .read_back = std::nullopt};
  for (const cluster::CpuSet& thread : plan.compute)
    binding.compute.push_back(cluster::to_string(thread));
  return binding;
}

RankBinding rank_binding(const cluster::BindingReport& report, const cluster::RankInfo& rank) {
  RankBinding binding = rank_binding(report.plan, rank);
  binding.ok = report.ok;
  ReadBack& found = binding.read_back.emplace();
  found.process_cpus = cluster::to_string(report.process_cpus);
  found.memory_node = report.memory_node;
  found.threads = report.threads;
  for (const auto& [what, nodes] : report.pages)
    for (const auto& [node, count] : nodes)
      found.pages[what][node < 0 ? "unknown" : std::to_string(node)] = count;
  found.upload_bytes_per_s = report.upload_bytes_per_s;
  found.failures = report.failures;
  return binding;
}

std::string to_json(const std::vector<RankBinding>& bindings) {
  std::vector<std::string> entries;
  for (const RankBinding& binding : bindings) entries.push_back(fields_to_json(binding, true));
  return fmt::format("[\n{}\n]\n", join(entries, ",\n"));
}

std::vector<RankBinding> read_bindings(const std::filesystem::path& path) {
  const auto json = parse_json<nlohmann::json>(read_text(path), path.string());
  require(json.is_array(), fmt::format("{}: is not a list of ranks", path.string()));
  std::vector<RankBinding> bindings;
  for (const auto& entry : json)
    bindings.push_back(read_fields<RankBinding>(
        entry, fmt::format("{}: entry {}", path.string(), bindings.size() + 1)));
  return bindings;
}

std::vector<std::string> slow_uploads(const std::vector<RankBinding>& ranks) {
  const auto rate = [](const RankBinding& rank) {
    return rank.read_back ? rank.read_back->upload_bytes_per_s : std::nullopt;
  };
  double fastest = 0;
  for (const RankBinding& rank : ranks) fastest = std::max(fastest, rate(rank).value_or(0));
  std::vector<std::string> lines;
  for (const RankBinding& rank : ranks)
    if (const auto mine = rate(rank); mine && *mine < fastest / 2)
      lines.push_back(fmt::format(
          "rank {} on {} copies to its GPU {} at {:.1f} GB/s, but the fastest rank at {:.1f}",
          rank.rank, rank.host, rank.gpu, *mine / 1e9, fastest / 1e9));
  return lines;
}

}  // namespace lockstep::observe
