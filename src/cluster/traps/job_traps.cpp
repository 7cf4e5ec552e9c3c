#include <fmt/format.h>

#include <algorithm>

#include "cluster/traps/trap_table.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

/// oneDNN reads each of its variables by two names.
std::string onednn_name(const NodeLook& look, const std::string& name) {
  for (const char* prefix : {"ONEDNN_", "DNNL_"})
    if (look.has(prefix + name)) return prefix + name;
  return "";
}

std::string in_capitals(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

Found lower_precision(const NodeLook& look) {
  const std::string name = onednn_name(look, "DEFAULT_FPMATH_MODE");
  const std::string value = look.value(name);
  if (name.empty() || value.empty() || in_capitals(value) == "STRICT") return {};
  return Trapped{fmt::format("{}={} lets convolutions in fp32 compute in fewer bits, whatever "
                             "--precision says",
                             name, value),
                 unset({name})};
}

Found older_instructions(const NodeLook& look) {
  const std::string name = onednn_name(look, "MAX_CPU_ISA");
  const std::string value = in_capitals(look.value(name));
  const auto can = [&](const char* flag) {
    return look.cpu_flags.find(fmt::format(" {} ", flag)) != std::string::npos;
  };
  const bool below_avx2 = (value == "SSE41" || value == "AVX") && can("avx2");
  const bool below_avx512 = value.starts_with("AVX2") && can("avx512f");
  if (name.empty() || (!below_avx2 && !below_avx512)) return {};
  return Trapped{
      fmt::format("{}={} keeps oneDNN from the instructions of this processor", name, value),
      unset({name})};
}

/// libgomp binds the first thread while it is loaded; programs then take its one place for all
/// that they may use.
Found openmp_binding(const NodeLook& look) {
  std::vector<std::string> set;
  for (const char* name : {"GOMP_CPU_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND"}) {
    const std::string value = in_capitals(look.value(name));
    if (!value.empty() && value != "FALSE" && value != "NONE" && value != "DISABLED")
      set.emplace_back(name);
  }
  if (set.empty()) return {};
  return Trapped{fmt::format("{} makes OpenMP bind this process to one place while it is loaded, "
                             "so that a rank computes on one core; lockstep binds its threads",
                             join(set, " and ")),
                 unset(set)};
}

Found memory_twice(const NodeLook& look) {
  const std::string by_node = look.value("SLURM_MEM_PER_NODE");
  if (by_node.empty() || !look.has("SLURM_MEM_PER_CPU")) return {};
  return Trapped{
      "SLURM_MEM_PER_CPU and SLURM_MEM_PER_NODE are both set, as in a job that another one "
      "submitted: srun rejects that",
      unset({"SLURM_MEM_PER_CPU"})};
}

/// srun sets these for its step. In a batch script they are another step's.
Found outer_binding(const NodeLook& look) {
  const bool in_step = look.has("SLURM_STEP_ID") || look.has("SLURM_STEPID");
  if (in_step || look.value("SLURM_CPU_BIND").find("mask_cpu:") == std::string::npos) return {};
  return Trapped{
      "SLURM_CPU_BIND is that of the srun in which this was submitted: \"Unable to satisfy cpu "
      "bind request\"",
      unset({"SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE",
             "SLURM_CPU_BIND_VERBOSE"})};
}

Found cpus_not_inherited(const NodeLook& look) {
  const auto asked = whole_number<std::size_t>(look.value("SLURM_CPUS_PER_TASK"));
  if (!look.has("SLURM_STEP_ID") || !asked || look.allowed.empty() ||
      look.allowed.size() >= *asked || look.has("SRUN_CPUS_PER_TASK"))
    return {};
  return Trapped{fmt::format("the job asks for {} CPUs a task, and this one has {}: srun of Slurm "
                             "22.05 to 23.02 takes none from the job",
                             *asked, look.allowed.size()),
                 exported("SRUN_CPUS_PER_TASK", std::to_string(*asked))};
}

Found empty_environment(const NodeLook& look) {
  if (look.value("SLURM_EXPORT_ENV") != "NONE") return {};
  return Trapped{
      "sbatch --export=NONE also holds for each srun in the script: ranks get none of the "
      "variables that it sets",
      exported("SLURM_EXPORT_ENV", "ALL")};
}

Found slow_clock(const NodeLook& look) {
  const bool chooses_itself = look.governor_driver.find("pstate") != std::string::npos;
  if (look.governor != "powersave" || chooses_itself || look.has("SLURM_CPU_FREQ_REQ")) return {};
  return Trapped{
      "the processor's governor is powersave, which keeps the lowest frequency; under Slurm",
      exported("SLURM_CPU_FREQ_REQ", "Performance")};
}

constexpr Trap job_table[] = {
    {"onednn-precision", "uxlfoundation/oneDNN#3104", certain, settings, lower_precision},
    {"onednn-instructions", "uxlfoundation/oneDNN#752", certain, files, older_instructions},
    {"openmp-binding", "OpenMathLib/OpenBLAS#2238", certain, settings, openmp_binding},
    {"slurm-memory-twice", "snakemake/snakemake#2230", perhaps, settings, memory_twice},
    {"slurm-outer-binding", "huggingface/datatrove#248", perhaps, settings, outer_binding},
    {"slurm-cpus", "scalableminds/webknossos-libs#1483", certain, files, cpus_not_inherited},
    {"slurm-export-none", "ResearchComputing/Documentation#86", certain, settings,
     empty_environment},
    {"slow-governor", "geopm/geopm#320", perhaps, files, slow_clock},
};

}  // namespace

std::span<const Trap> job_traps() { return job_table; }

}  // namespace lockstep::cluster
