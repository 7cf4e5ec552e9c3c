#include "lockstep/cluster/topology/gpu_choice.hpp"

#include <fmt/core.h>

#include <map>
#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::cluster {

std::size_t choose_gpu(const RankInfo& rank, std::size_t visible, bool share) {
  check(visible > 0, "choose_gpu: there is no GPU");
  if (visible == 1) return 0;
  const auto local_rank = static_cast<std::size_t>(rank.local_rank);
  if (share) return local_rank % visible;
  require(static_cast<std::size_t>(rank.local_size) <= visible,
          fmt::format("{0} ranks were started on {1}, but {2} GPUs are visible there: start {2} "
                      "(mpirun --map-by ppr:{2}:node, srun --ntasks-per-node={2}), or ask for {0} "
                      "GPUs (--gpus-per-node={0}); for tests, --share-gpu lets ranks share one",
                      rank.local_size, rank.host, visible));
  return local_rank;
}

void require_own_gpus(const std::vector<GpuUse>& ranks) {
  std::map<std::pair<std::string, std::string>, std::size_t> user_of;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [user, is_new] =
        user_of.try_emplace({ranks[rank].machine, ranks[rank].pci_bus_id}, rank);
    require(is_new,
            fmt::format("ranks {} and {} both use the GPU {} of one machine, which NCCL does not "
                        "allow: start one rank for each GPU, and show each rank another one or all "
                        "of them (CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1). For tests, and "
                        "for the parts of a MIG device, --share-gpu lets ranks share one, slowly",
                        user->second, rank, ranks[rank].pci_bus_id));
  }
}

}  // namespace lockstep::cluster
