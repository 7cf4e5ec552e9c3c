#pragma once

#include <algorithm>
#include <iterator>

#include "lockstep/cluster/topology.hpp"

namespace lockstep::cluster {

inline CpuSet common(const CpuSet& a, const CpuSet& b) {
  CpuSet both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

inline CpuSet joined(const CpuSet& a, const CpuSet& b) {
  CpuSet all;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}

inline CpuSet without(const CpuSet& a, const CpuSet& b) {
  CpuSet rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

inline bool contains(const CpuSet& whole, const CpuSet& part) {
  return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

}  // namespace lockstep::cluster
