#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::cluster {

/// How many pages lie on each NUMA node; -1 holds those that the kernel does not report.
using PagesOnNodes = std::map<int, std::size_t>;

using Memory = std::span<const std::byte>;

/// Asks the kernel where the touched pages are; of large memory it asks for an evenly spread part.
/// Pages that were never touched are on no node, and are not counted.
PagesOnNodes locate_pages(const std::vector<Memory>& memory);

/// The reason when more than a tenth of the pages of `what` is on other nodes, or at an unknown
/// place; nothing when the pages are where they should be. Pure.
std::optional<std::string> judge_pages(const std::string& what, const PagesOnNodes& pages,
                                       int numa_node);

}  // namespace lockstep::cluster
