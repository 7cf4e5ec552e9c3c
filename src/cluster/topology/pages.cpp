#include "lockstep/cluster/topology/pages.hpp"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "lockstep/base/room.hpp"

namespace lockstep::cluster {
namespace {

constexpr std::size_t most_pages = 4096;  // per question; the kernel looks up each of them

/// The pages that lie completely in the memory, or an evenly spread part of them.
std::vector<void*> pages_in(const std::vector<Memory>& memory) {
  const std::uintptr_t size = page_bytes();
  std::size_t bytes = 0;
  for (const Memory& part : memory) bytes += part.size();
  const std::uintptr_t stride = size * (bytes / size / most_pages + 1);
  std::vector<void*> pages;
  for (const Memory& part : memory) {
    const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
    for (std::uintptr_t at = (begin + size - 1) / size * size; at + size <= begin + part.size();
         at += stride)
      pages.push_back(const_cast<std::byte*>(part.data()) + (at - begin));
  }
  return pages;
}

}  // namespace

PagesOnNodes locate_pages(const std::vector<Memory>& memory) {
  std::vector<void*> pages = pages_in(memory);
  std::vector<int> where(pages.size(), -1);
  constexpr int this_process = 0;
  const int* ask_only = nullptr;
  const long failed =
      syscall(SYS_move_pages, this_process, pages.size(), pages.data(), ask_only, where.data(), 0);
  PagesOnNodes nodes;
  for (const int node : where)
    if (failed != 0 || node != -ENOENT) ++nodes[failed != 0 ? -1 : std::max(node, -1)];
  return nodes;
}

std::optional<std::string> judge_pages(const std::string& what, const PagesOnNodes& pages,
                                       int numa_node) {
  std::size_t all = 0, elsewhere = 0, unknown = 0;
  std::string nodes;
  for (const auto& [node, count] : pages) {
    all += count;
    if (node < 0) unknown += count;
    if (node < 0 || node == numa_node) continue;
    elsewhere += count;
    nodes += (nodes.empty() ? "" : ", ") + std::to_string(node);
  }
  const auto percent = [&](std::size_t count) {
    return 100 * static_cast<double>(count) / static_cast<double>(all);
  };
  if (10 * elsewhere > all)
    return fmt::format("{:.0f} % of the {} memory is on NUMA node {}, not on {}",
                       percent(elsewhere), what, nodes, numa_node);
  if (10 * unknown > all)
    return fmt::format(
        "where {:.0f} % of the {} memory is cannot be read back (asked for NUMA "
        "node {})",
        percent(unknown), what, numa_node);
  return std::nullopt;
}

}  // namespace lockstep::cluster
