#pragma once

#include <sched.h>

#include <cstddef>
#include <string>
#include <vector>

/// What trainings next to each other on one machine get of it, where no scheduler divides it.
namespace lockstep::study {

/// As long as it lives, programs that this thread starts have one slot's part of the cores that
/// this process has: each core belongs to one slot, as long as there are enough. With one slot it
/// changes nothing. **Thread safety:** the thread that made it.
class SlotCores {
 public:
  SlotCores(std::size_t slots, std::size_t slot) {
    if (slots < 2 || ::sched_getaffinity(0, sizeof all_, &all_) != 0) return;
    std::vector<int> cores;
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &all_)) cores.push_back(core);
    if (cores.empty()) return;
    cpu_set_t part;
    CPU_ZERO(&part);
    const std::size_t first = slot * cores.size() / slots;
    const std::size_t last = (slot + 1) * cores.size() / slots;
    for (std::size_t k = first; k < last; ++k) CPU_SET(cores[k], &part);
    if (first == last) CPU_SET(cores[first], &part);
    narrowed_ = ::sched_setaffinity(0, sizeof part, &part) == 0;
  }
  ~SlotCores() {
    if (narrowed_) ::sched_setaffinity(0, sizeof all_, &all_);
  }
  SlotCores(const SlotCores&) = delete;
  SlotCores& operator=(const SlotCores&) = delete;

 private:
  cpu_set_t all_{};
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
