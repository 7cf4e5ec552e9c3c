#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/cluster/topology/bind.hpp"

/// What trainings next to each other on one machine get of it, where no scheduler divides it.
namespace lockstep::study {

/// As long as it lives, programs that this thread starts have one slot's part of the cores that
/// this process has: each core belongs to one slot, as long as there are enough. With one slot it
/// changes nothing. **Thread safety:** the thread that made it.
class SlotCores {
 public:
  SlotCores(std::size_t slots, std::size_t slot) {
    if (slots < 2) return;
    all_ = cluster::current_cpus();
    if (all_.empty()) return;
    const auto begin_of = [&](std::size_t k) { return k * all_.size() / slots; };
    const std::size_t first = begin_of(slot), last = std::max(begin_of(slot + 1), first + 1);
    const auto at = [&](std::size_t k) { return all_.begin() + static_cast<std::ptrdiff_t>(k); };
    narrowed_ = binds({at(first), at(last)});
  }
  ~SlotCores() {
    if (narrowed_) binds(all_);
  }
  SlotCores(const SlotCores&) = delete;
  SlotCores& operator=(const SlotCores&) = delete;

 private:
  static bool binds(const cluster::CpuSet& cpus) {
    try {
      cluster::bind_thread(cpus);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  cluster::CpuSet all_;
  bool narrowed_ = false;
};

/// The variable by which a program sees one slot's part of a machine's GPUs; none without GPUs.
inline std::vector<std::string> gpus_of_slot(std::size_t gpus, std::size_t slots,
                                             std::size_t slot) {
  if (gpus == 0) return {};
  std::string list;
  for (std::size_t k = slot * gpus / slots; k < (slot + 1) * gpus / slots; ++k)
    list += (list.empty() ? "" : ",") + std::to_string(k);
  return {"CUDA_VISIBLE_DEVICES=" + (list.empty() ? std::to_string(slot % gpus) : list)};
}

}  // namespace lockstep::study
