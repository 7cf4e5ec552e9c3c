#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/cli/command_line.hpp"
#include "app/commands.hpp"
#include "app/start/compute.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/table.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/cluster/topology/binding_plan.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/cluster/topology/machine.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/device/gpus.hpp"
#include "lockstep/observe/binding_record.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;
using cluster::to_string;
using observe::RankBinding;

struct TopoOptions {
  std::optional<std::string> hwloc, hide_cpus;
  int ranks_per_node = 0;
  std::size_t threads = 0;
  bool json = false;
};

Json as_json(const cluster::Machine& machine) {
  Json numa = Json::array(), cores = Json::array(), gpus = Json::array(), networks = Json::array();
  for (const cluster::NumaNode& node : machine.numa)
    numa.push_back(
        {{"node", node.os_index}, {"cpus", to_string(node.cpus)}, {"bytes", node.bytes}});
  for (const cluster::CpuSet& core : machine.cores) cores.push_back(to_string(core));
  for (const cluster::Gpu& gpu : machine.gpus)
    gpus.push_back({{"pci_bus_id", gpu.pci_bus_id},
                    {"name", gpu.name},
                    {"near_cpus", to_string(gpu.near_cpus)}});
  for (const cluster::NetworkCard& card : machine.networks)
    networks.push_back({{"name", card.name},
                        {"pci_bus_id", card.pci_bus_id},
                        {"hca", card.hca},
                        {"up", card.up},
                        {"near_cpus", to_string(card.near_cpus)}});
  return {{"model", machine.model},  {"allowed", to_string(machine.allowed)},
          {"numa", std::move(numa)}, {"cores", std::move(cores)},
          {"gpus", std::move(gpus)}, {"networks", std::move(networks)}};
}

std::string text_of(const cluster::Machine& machine) {
  std::size_t logical = 0;
  for (const cluster::CpuSet& core : machine.cores) logical += core.size();
  std::string text =
      fmt::format("{}: {}, {}, allowed: {}\n", machine.model, counted(machine.cores.size(), "core"),
                  counted(logical, "logical processor"), to_string(machine.allowed));
  for (const cluster::NumaNode& node : machine.numa)
    text += fmt::format("NUMA node {}: CPUs {}, {}\n", node.os_index, to_string(node.cpus),
                        human_bytes(static_cast<double>(node.bytes)));
  for (const cluster::Gpu& gpu : machine.gpus)
    text += fmt::format("GPU {}: {}, near CPUs {}\n", gpu.pci_bus_id, gpu.name,
                        to_string(gpu.near_cpus));
  if (machine.gpus.empty()) text += "no GPU\n";
  for (const cluster::NetworkCard& card : machine.networks)
    text += fmt::format("network {}: {}, near CPUs {}{}\n", card.pci_bus_id, card.name,
                        to_string(card.near_cpus), card.up ? "" : ", down");
  return text;
}

Json as_json(const device::VisibleGpus& seen) {
  Json gpus = Json::array();
  for (const device::VisibleGpu& gpu : seen.gpus)
    gpus.push_back({{"name", gpu.name}, {"pci_bus_id", gpu.pci_bus_id}, {"bytes", gpu.bytes}});
  return {{"gpus", std::move(gpus)}, {"absence", seen.absence}, {"libraries", seen.libraries}};
}

/// The GPUs that lockstep can use, with CUDA's numbers.
std::string text_of(const device::VisibleGpus& seen) {
  std::string text;
  for (std::size_t i = 0; i < seen.gpus.size(); ++i)
    text += fmt::format("CUDA device {}: {}, {}, {}\n", i, seen.gpus[i].pci_bus_id,
                        seen.gpus[i].name, human_bytes(static_cast<double>(seen.gpus[i].bytes)));
  if (!seen.absence.empty()) text += fmt::format("no CUDA device: {}\n", seen.absence);
  if (!seen.libraries.empty()) text += seen.libraries + '\n';
  return text;
}

std::string compute_cell(const RankBinding& rank) {
  cluster::CpuSet all;
  for (const std::string& thread : rank.compute)
    for (int cpu : cluster::parse_cpus(thread)) all.push_back(cpu);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return fmt::format("{} ({})", to_string(all), counted(rank.compute.size(), "thread"));
}

std::string verdict(const RankBinding& rank) {
  if (!rank.ok) return "plan";
  return *rank.ok ? "PASS" : "FAIL";
}

std::string dash_if_empty(const std::string& text) { return text.empty() ? "-" : text; }

/// Where pinned memory is, as read back: "node 0", "node 0: 75 %, 1: 25 %".
std::string memory_cell(const RankBinding& rank) {
  if (!rank.read_back || !rank.read_back->pages.contains("pinned")) return "-";
  const auto& pages = rank.read_back->pages.at("pinned");
  double all = 0;
  for (const auto& [node, count] : pages) all += static_cast<double>(count);
  std::string text;
  for (const auto& [node, count] : pages)
    text += fmt::format(
        "{}{}{}", text.empty() ? "node " : ", ", node,
        pages.size() == 1 ? "" : fmt::format(": {:.0f} %", static_cast<double>(count) / all * 100));
  return dash_if_empty(text);
}

std::string upload_cell(const RankBinding& rank) {
  const auto rate = rank.read_back ? rank.read_back->upload_bytes_per_s : std::nullopt;
  return rate ? human_bytes(*rate) + "/s" : "-";
}

/// Leaves out columns that are empty for all ranks.
void drop_empty_columns(std::vector<std::vector<std::string>>& rows) {
  for (std::size_t column = rows.front().size(); column-- > 0;) {
    const bool empty = std::all_of(rows.begin() + 1, rows.end(),
                                   [&](const auto& row) { return row[column] == "-"; });
    if (!empty) continue;
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
}

/// One row per rank, then the ranks' failures and remarks; equal remarks of several ranks once.
std::string text_of(const std::vector<RankBinding>& ranks) {
  std::vector<std::vector<std::string>> rows{{"rank", "host", "local", "NUMA", "compute CPUs",
                                              "loader CPUs", "memory", "GPU", "upload", "network",
                                              "binding"}};
  std::vector<std::pair<std::string, std::string>> said;  // a remark, and its ranks
  for (const RankBinding& rank : ranks) {
    const int node = rank.numa_node;
    rows.push_back({std::to_string(rank.rank), rank.host, std::to_string(rank.local_rank),
                    node < 0 ? "several" : std::to_string(node), compute_cell(rank),
                    rank.loader + (rank.loader_shares_cores ? " (shared)" : ""), memory_cell(rank),
                    dash_if_empty(rank.gpu), upload_cell(rank), dash_if_empty(rank.network),
                    verdict(rank)});
    std::vector<std::string> remarks;
    if (rank.read_back) remarks = rank.read_back->failures;
    remarks.insert(remarks.end(), rank.remarks.begin(), rank.remarks.end());
    remarks.insert(remarks.end(), rank.ignored.begin(), rank.ignored.end());
    for (const std::string& remark : remarks) {
      const auto known = std::find_if(said.begin(), said.end(),
                                      [&](const auto& pair) { return pair.first == remark; });
      if (known == said.end())
        said.emplace_back(remark, std::to_string(rank.rank));
      else
        known->second += fmt::format(",{}", rank.rank);
    }
  }
  std::string text;
  if (ranks.front().ok)
    text = fmt::format("{}, identified by: {}\n", counted(ranks.size(), "rank"),
                       ranks.front().authority);
  drop_empty_columns(rows);
  text += table(rows);
  for (const auto& [remark, who] : said) text += fmt::format("rank {}: {}\n", who, remark);
  return text;
}

/// `seen`: what CUDA shows to rank 0; empty for ranks that do not run.
void print(const TopoOptions& options, const cluster::Machine& machine,
           const std::vector<RankBinding>& ranks, const device::VisibleGpus& seen) {
  const Json all{{"machine", as_json(machine)},
                 {"cuda", as_json(seen)},
                 {"ranks", Json::parse(observe::to_json(ranks))}};
  std::string text =
      options.json ? json_text(all, 2) : text_of(machine) + text_of(seen) + text_of(ranks);
  if (text.ends_with('\n')) text.pop_back();
  log::text(text);
}

/// The plan for ranks that do not run, on this machine or on another from its description.
int show_plan(const TopoOptions& options) {
  const cluster::RankInfo self = cluster::identify(cluster::process_environment(), std::nullopt);
  log::set_rank(self.rank, self.world);
  cluster::Machine machine = cluster::look_at_machine(options.hwloc);
  if (options.hide_cpus)
    machine = cluster::without_cpus(std::move(machine), cluster::parse_cpus(*options.hide_cpus));
  const std::size_t one_each =
      machine.gpus.empty() ? std::max<std::size_t>(machine.numa.size(), 1) : machine.gpus.size();
  const int count =
      options.ranks_per_node > 0 ? options.ranks_per_node : static_cast<int>(one_each);
  const bool gpu_each = static_cast<std::size_t>(count) <= machine.gpus.size();
  std::vector<cluster::LocalRank> local(static_cast<std::size_t>(count));
  for (std::size_t rank = 0; rank < local.size(); ++rank) {
    local[rank].mask = machine.foreign ? machine.allowed : cluster::current_cpus();
    if (gpu_each) local[rank].gpu_pci_bus_id = machine.gpus[rank].pci_bus_id;
  }
  std::vector<RankBinding> ranks;
  for (std::size_t rank = 0; rank < local.size(); ++rank) {
    cluster::RankInfo info;
    info.rank = info.local_rank = static_cast<int>(rank);
    info.world = info.local_size = count;
    info.host =
        machine.foreign ? std::filesystem::path(*options.hwloc).filename().string() : self.host;
    cluster::Plan plan =
        cluster::plan_binding(machine, cluster::request_among(local, rank, options.threads));
    if (gpu_each && local.size() < machine.gpus.size())
      plan.remarks.push_back(fmt::format("{} but {}: {} stay idle", counted(local.size(), "rank"),
                                         counted(machine.gpus.size(), "GPU"),
                                         machine.gpus.size() - local.size()));
    if (!machine.gpus.empty() && !gpu_each)
      plan.remarks.push_back(fmt::format("{} but {}: planned as CPU ranks",
                                         counted(local.size(), "rank"),
                                         counted(machine.gpus.size(), "GPU")));
    ranks.push_back(observe::rank_binding(plan, info));
  }
  print(options, machine, ranks, {});
  return 0;
}

/// Binds the running ranks and reads the binding back.
int bind_and_verify(const TopoOptions& options, Launch& launch) {
  launch.start();
  const cluster::Machine machine = cluster::look_at_machine();
  const device::VisibleGpus seen = device::look_at_gpus();
  const ChosenGpu gpu = choose_gpu(launch.rank, seen.gpus.empty() ? "cpu" : "cuda", true);
  const cluster::Plan plan = plan_rank(launch, machine, options.threads, gpu.pci_bus_id).plan;
  const RankBinding mine = observe::rank_binding(bind_rank(plan, gpu.ordinal).report, launch.rank);
  const auto ranks = comm::gather_records_at_root(*launch.control, mine, "binding report");
  if (launch.rank.rank == 0) {
    for (const std::string& line : observe::slow_uploads(ranks)) log::warn(line);
    print(options, machine, ranks, seen);
  }
  const bool failed = !mine.ok.value_or(false);
  return launch.control->any(failed, "binding report") ? 1 : 0;
}

}  // namespace

Command add_topo(Arguments root) {
  auto options = std::make_shared<TopoOptions>();
  Arguments app = root.add_command(
      "topo",
      "Show what this machine is and where each rank runs. Started by mpirun or srun, every rank "
      "binds itself and reads the binding back: PASS or FAIL; exit status 1 when one fails.");
  app.add("--hwloc", options->hwloc,
          "plan for the machine in this file (lstopo --of xml FILE.xml); nothing is bound")
      .called("FILE");
  add_count(app, "--ranks-per-node", options->ranks_per_node, {1, 1024},
            "plan for this many ranks without starting them")
      .shows("with --hwloc: one for each GPU, else for each NUMA node");
  app.add("--hide-cpus", options->hide_cpus, "plan as if a cgroup hid these CPUs, such as 0-3,8");
  add_count(app, "--threads", options->threads, threads_or_all,
            "compute threads of a rank; auto: one for each core of its share");
  app.add_flag("--json", options->json, "print JSON");
  return {app, [options](Launch& launch) {
            const bool only_plan = options->hwloc || options->ranks_per_node > 0;
            require(only_plan || !options->hide_cpus,
                    "--hide-cpus is for a plan: give --hwloc FILE.xml or --ranks-per-node N, too");
            if (!only_plan) return bind_and_verify(*options, launch);
            return launch.leave_to_rank_0() ? 0 : show_plan(*options);
          }};
}

}  // namespace lockstep::app
