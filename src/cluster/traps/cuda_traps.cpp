#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cluster/traps/trap_table.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

namespace fs = std::filesystem;

/// The first word like "550.54.15", as numbers; empty where there is none.
std::vector<int> version_in(std::string_view text) {
  while (!text.empty()) {
    const std::string word(text.substr(0, text.find_first_of(" -")));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    std::vector<int> version;
    for (std::string_view rest = word; !rest.empty();) {
      const std::string_view part = rest.substr(0, rest.find('.'));
      const auto number = whole_number<int>(part);
      if (!number) break;
      version.push_back(*number);
      rest.remove_prefix(std::min(part.size() + 1, rest.size()));
      if (rest.empty() && version.size() > 1) return version;
    }
  }
  return {};
}

std::vector<std::string> paths_in(std::string_view text) {
  std::vector<std::string> paths;
  while (!text.empty()) {
    paths.emplace_back(text.substr(0, text.find(':')));
    text.remove_prefix(std::min(paths.back().size() + 1, text.size()));
  }
  return paths;
}

/// The version of the driver's library that a folder has for older drivers; empty: it has none.
std::vector<int> compatible_driver_in(const NodeLook& look, const fs::path& folder) {
  constexpr std::string_view title = "libcuda.so.";
  std::error_code error;
  for (fs::directory_iterator at(look.root / folder.relative_path(), error), end;
       !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (!name.starts_with(title)) continue;
    if (const auto version = version_in(name.substr(title.size())); !version.empty())
      return version;
  }
  return {};
}

std::size_t count_of(const std::string& list) { return list.empty() ? 0 : listed(list).size(); }

bool gives_gpus_by_task(const NodeLook& look) {
  return look.has("SLURM_GPUS_PER_TASK") ||
         look.value("SLURM_TRES_PER_TASK").find("gpu") != std::string::npos;
}

Found blocking_launches(const NodeLook& look) {
  if (look.gpus == 0 || look.value("CUDA_LAUNCH_BLOCKING") != "1") return {};
  return Trapped{
      "CUDA_LAUNCH_BLOCKING=1, which is for debugging: the host waits for each kernel, so that "
      "nothing overlaps",
      unset({"CUDA_LAUNCH_BLOCKING"})};
}

Found one_queue(const NodeLook& look) {
  if (look.gpus == 0 || look.value("CUDA_DEVICE_MAX_CONNECTIONS") != "1") return {};
  return Trapped{
      "CUDA_DEVICE_MAX_CONNECTIONS=1, which tensor parallelism wants: sums of gradients then wait "
      "for kernels that they could overlap",
      unset({"CUDA_DEVICE_MAX_CONNECTIONS"})};
}

Found tf32_override(const NodeLook& look) {
  const std::string value = look.value("NVIDIA_TF32_OVERRIDE");
  if (look.gpus == 0 || value.empty()) return {};
  return Trapped{fmt::format("NVIDIA_TF32_OVERRIDE={} takes precedence over --precision: {}", value,
                             value == "0" ? "tf32 computes in fp32, several times slower"
                                          : "fp32 computes in tf32, with 10 bits of a fraction"),
                 unset({"NVIDIA_TF32_OVERRIDE"})};
}

Found driver_capabilities(const NodeLook& look) {
  const std::string value = look.value("NVIDIA_DRIVER_CAPABILITIES");
  const auto given = listed(value);
  const auto has = [&](const char* one) { return std::ranges::find(given, one) != given.end(); };
  if (look.gpus == 0 || value.empty() || has("all") || has("compute")) return {};
  return Trapped{
      fmt::format("NVIDIA_DRIVER_CAPABILITIES={} lets no libcuda.so.1 into the container", value),
      exported("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")};
}

Found old_compatibility(const NodeLook& look) {
  const auto driver = version_in(look.nvidia_driver);
  const std::string paths = look.value("LD_LIBRARY_PATH");
  if (driver.empty()) return {};
  std::string kept, old;
  for (const std::string& path : paths_in(paths)) {
    const auto compatible = compatible_driver_in(look, path);
    const bool is_old = !compatible.empty() && compatible < driver;
    (is_old ? old : kept) += (is_old ? old : kept).empty() ? path : ":" + path;
  }
  if (old.empty()) return {};
  return Trapped{fmt::format("LD_LIBRARY_PATH has {}, a libcuda for drivers older than this one: "
                             "CUDA fails with error 803",
                             old),
                 exported("LD_LIBRARY_PATH", kept)};
}

Found fewer_visible(const NodeLook& look) {
  const std::size_t given = count_of(look.value("SLURM_STEP_GPUS"));
  const std::string visible = look.value("CUDA_VISIBLE_DEVICES");
  const std::string bound = look.value("SLURM_GPU_BIND");
  const std::size_t seen = count_of(visible);
  if (seen == 0 || seen >= given || static_cast<int>(seen) >= look.ranks_here ||
      gives_gpus_by_task(look) || (!bound.empty() && bound != "none"))
    return {};
  std::vector<std::string> all;
  for (std::size_t i = 0; i < given; ++i) all.push_back(std::to_string(i));
  return Trapped{fmt::format("Slurm gave this node's ranks {}, but CUDA_VISIBLE_DEVICES={} shows "
                             "them {}",
                             counted(given, "GPU"), visible, seen),
                 exported("CUDA_VISIBLE_DEVICES", join(all, ","))};
}

Found gpus_by_task(const NodeLook& look) {
  if (!gives_gpus_by_task(look) || look.value("SLURM_GPU_BIND") == "none" || look.ranks_here < 2 ||
      count_of(look.value("CUDA_VISIBLE_DEVICES")) > 1)
    return {};
  return Trapped{
      "srun --gpus-per-task hides the node's other GPUs from each rank: NCCL then does without "
      "NVLink or fails. --gpus-per-node shows all; so does",
      exported("SLURM_GPU_BIND", "none")};
}

Found no_multi_node_nvlink(const NodeLook& look) {
  if (!joins_gpus(look) || !joins_nodes(look) || look.value("NCCL_CUMEM_ENABLE") != "0" ||
      !look.has_file("/dev/nvidia-caps-imex-channels"))
    return {};
  return Trapped{"NCCL_CUMEM_ENABLE=0 keeps NCCL from this machine's NVLink between nodes",
                 unset({"NCCL_CUMEM_ENABLE"})};
}

constexpr Trap cuda_table[] = {
    {"blocking-launches", "horenbergerb/BernoulliDiffusion#23", certain, settings,
     blocking_launches},
    {"one-cuda-queue", "verl-project/verl-omni#421", certain, settings, one_queue},
    {"tf32-override", "lightseekorg/tokenspeed#35", certain, settings, tf32_override},
    {"driver-capabilities", "mudler/LocalAI#11973", certain, settings, driver_capabilities},
    {"cuda-compat", "ggml-org/llama.cpp#17542", certain, files, old_compatibility},
    {"fewer-visible-gpus", "mozilla/translations#67", certain, settings, fewer_visible},
    {"gpus-per-task", "NVIDIA/nccl#1066", certain, settings, gpus_by_task},
    {"no-multi-node-nvlink", "vllm-project/vllm#16992", certain, files, no_multi_node_nvlink},
};

}  // namespace

std::span<const Trap> cuda_traps() { return cuda_table; }

}  // namespace lockstep::cluster
