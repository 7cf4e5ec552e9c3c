#include <fmt/format.h>

#include <algorithm>

#include "cluster/lint/batch_script.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/walltime.hpp"

namespace lockstep::cluster {
namespace {

constexpr double least_memory_mb = 512;  // per rank: the program, its libraries and small batches

struct Nodes {
  std::optional<long> fewest, most;
};

Nodes nodes_of(const BatchScript& script) {
  const Setting* setting = script.directive("nodes");
  if (!setting) return {};
  const std::string_view value = setting->value;
  const std::size_t dash = value.find('-');
  if (dash == value.npos) return {whole_number<long>(value), whole_number<long>(value)};
  return {whole_number<long>(value.substr(0, dash)), whole_number<long>(value.substr(dash + 1))};
}

std::optional<long> tasks_on_a_node(const BatchScript& script) {
  if (const auto given = script.number("ntasks-per-node")) return given;
  const auto tasks = script.number("ntasks");
  if (!tasks) return script.directive("ntasks") ? std::nullopt : std::optional<long>(1);
  const Nodes nodes = nodes_of(script);
  const long fewest = nodes.fewest.value_or(1);
  if (fewest < 1 || nodes.fewest != nodes.most) return std::nullopt;
  return (*tasks + fewest - 1) / fewest;
}

/// The line and the number of a node's GPUs, if the script gives them.
std::optional<std::pair<std::size_t, long>> gpus_on_a_node(const BatchScript& script) {
  if (const Setting* given = script.directive("gpus-per-node"))
    if (const auto count = read_gpu_count(given->value)) return std::pair(given->line, *count);
  const Setting* gres = script.directive("gres");
  if (!gres) return std::nullopt;
  long sum = 0;
  for (std::string_view rest = gres->value; !rest.empty();) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    if (item == "gpu") ++sum;
    if (item.starts_with("gpu:")) sum += read_gpu_count(item).value_or(1);
  }
  if (sum == 0) return std::nullopt;
  return std::pair(gres->line, sum);
}

void lint_values(const BatchScript& script, Findings& findings) {
  for (const auto& [name, setting] : script.directives)
    if (setting.value.find('$') != std::string::npos && name != "wrap")
      findings.error(setting.line, "variable",
                     fmt::format("sbatch replaces no variables in #SBATCH lines: --{} will be "
                                 "literally \"{}\". Give it on sbatch's command line",
                                 name, setting.value));
  for (const char* name : {"ntasks", "ntasks-per-node", "cpus-per-task", "ntasks-per-gpu"})
    if (const Setting* given = script.directive(name); given && !whole_number<long>(given->value))
      findings.error(given->line, "value",
                     fmt::format("--{} takes a whole number, not \"{}\"", name, given->value));
  for (const char* name : {"gpus", "gpus-per-node", "gpus-per-task"})
    if (const Setting* given = script.directive(name); given && !read_gpu_count(given->value))
      findings.error(given->line, "value",
                     fmt::format("--{} takes [type:]number, not \"{}\"", name, given->value));
  if (const Setting* given = script.directive("nodes"); given && !nodes_of(script).most)
    findings.error(given->line, "value",
                   fmt::format("--nodes takes a number or fewest-most, not \"{}\"", given->value));
}

void lint_time(const BatchScript& script, Findings& findings) {
  const Setting* time = script.directive("time");
  if (!time)
    return findings.warning(0, "time",
                            "no --time: the partition's default applies, which may be minutes, or "
                            "so long that the job has to wait");
  const auto limit = read_time_limit(time->value);
  if (!limit)
    return findings.error(time->line, "time",
                          fmt::format("\"{}\" is not a time limit: write minutes, "
                                      "hours:minutes:seconds or days-hours:minutes:seconds",
                                      time->value));
  const bool two_parts =
      std::ranges::count(time->value, ':') == 1 && time->value.find('-') == std::string::npos;
  if (two_parts)
    findings.warning(time->line, "time",
                     fmt::format("--time={} is minutes:seconds; for hours write {}:00", time->value,
                                 time->value));
}

void lint_memory(const BatchScript& script, Findings& findings) {
  const Setting* first = nullptr;
  for (const char* name : {"mem", "mem-per-cpu", "mem-per-gpu"}) {
    const Setting* given = script.directive(name);
    if (!given) continue;
    if (!read_memory_mb(given->value))
      findings.error(
          given->line, "memory",
          fmt::format("--{} takes a number and K, M, G or T, not \"{}\"", name, given->value));
    if (first)
      findings.error(given->line, "memory",
                     fmt::format("--{} and the memory option in line {} exclude each other", name,
                                 first->line));
    first = first ? first : given;
  }
  if (!first)
    return findings.warning(0, "memory",
                            "no --mem: the partition's default applies, and Slurm kills the rank "
                            "that exceeds it. --mem=0 asks for all of a node's memory");
  const Setting* of_node = script.directive("mem");
  const Setting* of_cpu = script.directive("mem-per-cpu");
  const double tasks = static_cast<double>(tasks_on_a_node(script).value_or(1));
  const double cpus = static_cast<double>(script.number("cpus-per-task").value_or(1));
  std::optional<double> of_rank;
  if (of_node)
    of_rank = read_memory_mb(of_node->value).value_or(0) / std::max(tasks, 1.0);
  else if (of_cpu)
    of_rank = read_memory_mb(of_cpu->value).value_or(0) * cpus;
  if (of_rank && *of_rank > 0 && *of_rank < least_memory_mb)
    findings.warning(first->line, "memory",
                     fmt::format("leaves {:.0f} MB for each rank; a number without a letter counts "
                                 "MB (--mem=16 is 16 MB, not --mem=16G)",
                                 *of_rank));
}

void lint_tasks(const BatchScript& script, Findings& findings) {
  const Nodes nodes = nodes_of(script);
  const auto tasks = script.number("ntasks");
  const auto each = script.number("ntasks-per-node");
  if (!tasks || !nodes.fewest || nodes.fewest != nodes.most || *nodes.fewest < 2) return;
  const std::size_t line = script.line_of("ntasks");
  if (each && *each * *nodes.fewest != *tasks)
    findings.error(line, "tasks",
                   fmt::format("--ntasks={} is not {} nodes x --ntasks-per-node={}", *tasks,
                               *nodes.fewest, *each));
  if (!each && *tasks % *nodes.fewest != 0)
    findings.warning(line, "tasks",
                     fmt::format("{} tasks on {} nodes: the nodes get unequal shares of each batch",
                                 *tasks, *nodes.fewest));
  else if (!each)
    findings.warning(line, "tasks",
                     fmt::format("Slurm may place {} tasks unevenly on {} nodes: write "
                                 "--ntasks-per-node={}",
                                 *tasks, *nodes.fewest, *tasks / *nodes.fewest));
}

/// Both seen with Slurm 22.05.
void lint_node_range(const BatchScript& script, Findings& findings) {
  const Nodes nodes = nodes_of(script);
  const auto each = script.number("ntasks-per-node");
  if (!nodes.fewest || !nodes.most || !each || *nodes.fewest == *nodes.most) return;
  const std::size_t line = script.line_of("nodes");
  if (*nodes.most > *nodes.fewest * *each)
    findings.warning(line, "nodes",
                     fmt::format("Slurm gives no more nodes than {} x --ntasks-per-node={}: raise "
                                 "the smaller number of --nodes",
                                 *nodes.fewest, *each));
  if (script.requeues())
    findings.warning(line, "nodes",
                     "with --ntasks-per-node a job that is started again waits for as many nodes "
                     "as it had: leave that out, and give srun --ntasks");
}

void lint_gpus(const BatchScript& script, Findings& findings) {
  if (const Setting* given = script.directive("gpus-per-task"))
    findings.warning(given->line, "gpus-per-task",
                     "each rank then sees only its own GPU, and NCCL cannot always copy directly "
                     "from GPU to GPU; under mpirun the nodes differ. Write --gpus-per-node: a "
                     "rank takes the GPU of its local rank");
  const Nodes nodes = nodes_of(script);
  if (const Setting* given = script.directive("gpus"); given && nodes.most.value_or(2) > 1)
    findings.warning(given->line, "gpus",
                     "--gpus may be spread unevenly over the nodes: write --gpus-per-node");
  const auto gpus = gpus_on_a_node(script);
  const auto tasks = tasks_on_a_node(script);
  const bool srun_says = std::ranges::any_of(script.starts, [](const RankStart& start) {
    return start.starts_lockstep() && start.has("ntasks");
  });
  if (!gpus || !tasks || srun_says || script.mentions("--share-gpu")) return;
  const std::string wanted = fmt::format("--ntasks-per-node={}", gpus->second);
  if (*tasks > gpus->second)
    findings.error(
        gpus->first, "gpus",
        fmt::format("{} tasks on a node share {}, which lockstep does not "
                    "allow: write {} (or start lockstep with --share-gpu)",
                    *tasks, counted(static_cast<std::size_t>(gpus->second), "GPU"), wanted));
  if (*tasks < gpus->second)
    findings.warning(gpus->first, "gpus",
                     fmt::format("{} on a node with {} GPUs: a rank uses one, {} stay "
                                 "idle. Write {}",
                                 counted(static_cast<std::size_t>(*tasks), "task"), gpus->second,
                                 gpus->second - *tasks, wanted));
}

void lint_array(const BatchScript& script, Findings& findings) {
  const Setting* output = script.directive("output");
  if (!script.directive("array") || !output) return;
  if (output->value.find("%a") == std::string::npos &&
      output->value.find("%j") == std::string::npos)
    findings.error(output->line, "array",
                   "all tasks of the array write into this file: put %A and %a into its name");
}

}  // namespace

void lint_resources(const BatchScript& script, Findings& findings) {
  lint_values(script, findings);
  lint_time(script, findings);
  lint_memory(script, findings);
  lint_tasks(script, findings);
  lint_node_range(script, findings);
  lint_gpus(script, findings);
  lint_array(script, findings);
  if (!script.directive("cpus-per-task") && !script.directive("cpus-per-gpu") &&
      !script.directive("exclusive"))
    findings.warning(0, "cpus",
                     "no --cpus-per-task: each rank gets one core, for computing and for reading");
}

}  // namespace lockstep::cluster
