#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cluster {

/// A set of logical processors: the operating system's indices, ascending. "0-3,8" as text.
using CpuSet = std::vector<int>;

std::string to_string(const CpuSet& cpus);
/// The set written as "0-3,8"; "" is the empty set. Throws InputError with the text when it is not
/// such a list.
CpuSet parse_cpus(std::string_view text);

CpuSet common(const CpuSet& a, const CpuSet& b);
CpuSet joined(const CpuSet& a, const CpuSet& b);
/// `a` without the CPUs of `b`.
CpuSet without(const CpuSet& a, const CpuSet& b);
bool contains(const CpuSet& whole, const CpuSet& part);

}  // namespace lockstep::cluster
