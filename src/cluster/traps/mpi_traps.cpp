#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cluster/traps/trap_table.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

constexpr double least_locked_bytes = 512e6;  // below it UCX does without InfiniBand
constexpr std::size_t longest_temporary = 70;
constexpr int files_of_a_program = 256, files_of_a_rank = 2;

bool has_item(const std::string& list, std::string_view item) {
  const auto items = listed(list);
  return std::ranges::find(items, item) != items.end();
}

Found little_locked_memory(const NodeLook& look) {
  const double bytes = look.limit(locked_memory);
  if (!joins_nodes(look) || (active_hcas(look).empty() && !has_efa(look)) ||
      bytes >= least_locked_bytes)
    return {};
  return Trapped{fmt::format("only {:.0f} KB may be locked in memory: InfiniBand, RoCE and EFA "
                             "cannot register buffers",
                             bytes / 1024),
                 "ulimit -l unlimited"};
}

Found few_files(const NodeLook& look) {
  const int needed = files_of_a_program + files_of_a_rank * look.world;
  const double most = look.limit(open_files);
  const auto hard = look.limits.find(open_files);
  if (look.world < 2 || hard == look.limits.end() || hard->second.second == "unlimited" ||
      std::stod(hard->second.second) >= needed)
    return {};
  return Trapped{fmt::format("{:.0f} files may be open; connections between {} ranks need {}", most,
                             look.world, needed),
                 fmt::format("ulimit -n {}", needed)};
}

Found ucx_without_self(const NodeLook& look) {
  const std::string value = look.value("UCX_TLS");
  if (value.empty() || value.starts_with('^') || has_item(value, "self") || has_item(value, "all"))
    return {};
  return Trapped{fmt::format("UCX_TLS={} has no \"self\": UCX cannot be selected", value),
                 exported("UCX_TLS", value + ",self")};
}

Found ucx_device(const NodeLook& look) {
  const std::string value = look.value("UCX_NET_DEVICES");
  if (value.empty() || value == "all" || value.starts_with('^') || look.interfaces.empty())
    return {};
  for (const std::string& one : listed(value)) {
    const std::string name = one.substr(0, one.find(':'));
    for (const HcaFacts& hca : look.hcas)
      if (hca.name == name) return {};
    for (const InterfaceFacts& interface : look.interfaces)
      if (interface.name == name) return {};
    if (name.find('[') != name.npos) return {};
  }
  return Trapped{fmt::format("UCX_NET_DEVICES={} names no device of this node", value),
                 unset({"UCX_NET_DEVICES"})};
}

Found mpi_bridge(const NodeLook& look) {
  const auto bad = bridges(look);
  if (!joins_nodes(look) || !open_mpi_major(look) || bad.empty() || !active_hcas(look).empty() ||
      look.slingshot_cards > 0 || has_efa(look) || look.has("OMPI_MCA_btl_tcp_if_include") ||
      look.has("OMPI_MCA_btl_tcp_if_exclude"))
    return {};
  return Trapped{
      fmt::format("Open MPI may take {}, whose addresses are the same on each node: MPI's "
                  "messages then never arrive",
                  join(bad, ", ")),
      exported("OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8," + join(bad, ","))};
}

Found mpi_loopback(const NodeLook& look) {
  if (!joins_nodes(look) || look.value("OMPI_MCA_btl_tcp_if_include") != "lo") return {};
  return Trapped{"OMPI_MCA_btl_tcp_if_include=lo does not lead to another node",
                 unset({"OMPI_MCA_btl_tcp_if_include"})};
}

Found old_launcher_variables(const NodeLook& look) {
  constexpr std::string_view old = "OMPI_MCA_orte_";
  if (open_mpi_major(look).value_or(0) < 5) return {};
  for (auto at = look.env.lower_bound(old); at != look.env.end() && at->first.starts_with(old);
       ++at) {
    const std::string now = "PRTE_MCA_prte_" + at->first.substr(old.size());
    if (look.has(now)) continue;
    return Trapped{fmt::format("Open MPI 5 does not read {}: what it sets, such as the hosts, is "
                               "lost, and each process may be a world of one rank",
                               at->first),
                   exported(now, at->second)};
  }
  return {};
}

Found single_copy(const NodeLook& look) {
  constexpr const char* name = "OMPI_MCA_btl_vader_single_copy_mechanism";
  const auto major = open_mpi_major(look);
  if (!look.filters_calls || look.ranks_here < 2 || !major || *major > 4 || look.has(name))
    return {};
  return Trapped{
      "a container's filter of system calls may keep Open MPI's ranks from each other's memory "
      "(\"Read -1, expected ..., errno = 1\")",
      exported(name, "none")};
}

Found shared_temporary(const NodeLook& look) {
  const std::string folder = look.value("TMPDIR");
  if (folder.empty() || !open_mpi_major(look)) return {};
  const std::string type = look.mount_of(folder).type;
  for (const char* kind : {"nfs", "lustre", "gpfs", "beegfs", "ceph", "panfs"})
    if (type.starts_with(kind))
      return Trapped{
          fmt::format("TMPDIR={} is on {}: Open MPI's start takes minutes there", folder, type),
          exported("TMPDIR", "/tmp")};
  return {};
}

Found long_temporary(const NodeLook& look) {
  const std::string folder = look.value("TMPDIR");
  if (folder.size() <= longest_temporary || open_mpi_major(look).value_or(4) > 4) return {};
  return Trapped{
      fmt::format("TMPDIR has {} characters: with the names that Open MPI adds it is too "
                  "long for a socket",
                  folder.size()),
      exported("TMPDIR", "/tmp")};
}

Found munge_missing(const NodeLook& look) {
  const std::string mode = look.value("PMIX_SECURITY_MODE");
  if (!mode.starts_with("munge") || look.has("PMIX_MCA_psec")) return {};
  for (const char* folder : {"/usr/lib64", "/usr/lib", "/usr/lib/x86_64-linux-gnu",
                             "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu"})
    if (look.has_file(std::string(folder) + "/libmunge.so.2")) return {};
  return Trapped{
      "Slurm's PMIx signs with munge, which is not installed here: warnings, or no start",
      exported("PMIX_MCA_psec", "^munge")};
}

Found shared_job_data(const NodeLook& look) {
  const bool contained = look.has("APPTAINER_NAME") || look.has("SINGULARITY_NAME");
  const auto major = open_mpi_major(look);
  if (!contained || !major || *major > 3 || !look.value("PMIX_GDS_MODULE").starts_with("ds") ||
      look.has("PMIX_MCA_gds"))
    return {};
  return Trapped{
      "PMIx passes what it knows of the job through files that the container does not see",
      exported("PMIX_MCA_gds", "hash")};
}

Found gpu_transport(const NodeLook& look) {
  const bool linked = std::ranges::any_of(
      look.libraries, [](const auto& library) { return library.first.starts_with("libmpi_gtl"); });
  if (look.value("MPICH_GPU_SUPPORT_ENABLED") != "1" || linked ||
      look.mpi.find("CRAY MPICH") == std::string::npos)
    return {};
  return Trapped{
      "MPICH_GPU_SUPPORT_ENABLED=1 ends a program that is not linked with libmpi_gtl; lockstep "
      "gives MPI no GPU's memory",
      exported("MPICH_GPU_SUPPORT_ENABLED", "0")};
}

Found two_managers(const NodeLook& look) {
  if (look.mpi.find("MPICH") == std::string::npos || !look.has("PMI_SIZE") ||
      !look.has("PMIX_NAMESPACE"))
    return {};
  return Trapped{"PMI_SIZE and PMIX_NAMESPACE are both set: MPICH aborts",
                 unset({"PMIX_NAMESPACE", "PMIX_RANK"})};
}

Found foreign_pmi(const NodeLook& look) {
  const std::string library = look.value("I_MPI_PMI_LIBRARY");
  if (library.empty() || !look.has("FLUX_JOB_SIZE") || look.mpi.find("Intel") == std::string::npos)
    return {};
  return Trapped{fmt::format("I_MPI_PMI_LIBRARY={} is Slurm's, and Flux started these ranks: each "
                             "would be a world of one",
                             library),
                 unset({"I_MPI_PMI_LIBRARY"})};
}

constexpr Trap mpi_table[] = {
    {"locked-memory", "ai4d-iasc/trixie#81", certain, files, little_locked_memory},
    {"open-files", "open-mpi/ompi#12489", certain, files, few_files},
    {"ucx-self", "openucx/ucx#8940", perhaps, settings, ucx_without_self},
    {"ucx-device", "openucx/ucx#11220", certain, files, ucx_device},
    {"mpi-bridge", "open-mpi/ompi#6377", perhaps, files, mpi_bridge},
    {"mpi-loopback", "open-mpi/ompi#13722", certain, settings, mpi_loopback},
    {"mpi-5-variables", "kubeflow/trainer#4028", certain, settings, old_launcher_variables},
    {"single-copy", "open-mpi/ompi#4948", perhaps, files, single_copy},
    {"shared-tmpdir", "openpmix/prrte#1866", perhaps, files, shared_temporary},
    {"long-tmpdir", "open-mpi/ompi#3798", perhaps, settings, long_temporary},
    {"pmix-munge", "EESSI/compatibility-layer#216", perhaps, files, munge_missing},
    {"pmix-in-container", "apptainer/singularity#5195", perhaps, settings, shared_job_data},
    {"cray-gpu-transport", "APPFL/APPFL#258", certain, files, gpu_transport},
    {"pmi-and-pmix", "pmodels/mpich#7957", certain, settings, two_managers},
    {"flux-and-slurm-pmi", "flux-framework/flux-core#630", certain, settings, foreign_pmi},
};

}  // namespace

std::span<const Trap> mpi_traps() { return mpi_table; }

}  // namespace lockstep::cluster
