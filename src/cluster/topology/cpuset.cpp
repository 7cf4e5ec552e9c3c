#include "lockstep/cluster/topology/cpuset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "lockstep/base/error.hpp"

namespace lockstep::cluster {
namespace {

constexpr int cpu_limit = 1 << 20;  // far above any kernel's; stops "0-9999999999" from filling RAM

/// Takes one index from the front of `rest`; false when there is none.
bool take_index(std::string_view& rest, int& index) {
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
  if (error != std::errc{} || rest.front() == '-' || index >= cpu_limit) return false;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return true;
}

bool take_character(std::string_view& rest, char wanted) {
  if (rest.empty() || rest.front() != wanted) return false;
  rest.remove_prefix(1);
  return true;
}

}  // namespace

std::string to_string(const CpuSet& cpus) {
  std::string text;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", cpus[first])
                          : fmt::format("{}-{}", cpus[first], cpus[last]);
    first = last + 1;
  }
  return text;
}

CpuSet parse_cpus(std::string_view text) {
  CpuSet cpus;
  std::string_view rest = text;
  while (!rest.empty()) {
    int first = 0;
    bool good = (cpus.empty() || take_character(rest, ',')) && take_index(rest, first);
    int last = first;
    if (good && take_character(rest, '-')) good = take_index(rest, last) && last >= first;
    good = good && (cpus.empty() || first > cpus.back());
    require(good, fmt::format("'{}' is not a list of CPUs such as 0-3,8 in ascending order", text));
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

CpuSet common(const CpuSet& a, const CpuSet& b) {
  CpuSet both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

CpuSet joined(const CpuSet& a, const CpuSet& b) {
  CpuSet all;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}

CpuSet without(const CpuSet& a, const CpuSet& b) {
  CpuSet rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

bool contains(const CpuSet& whole, const CpuSet& part) {
  return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

}  // namespace lockstep::cluster
