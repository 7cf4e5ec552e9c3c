#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cluster {

/// More names than this one list never holds: Slurm's own limit for a range.
inline constexpr std::size_t max_hosts = 65536;

/// The names in Slurm's short form, in order: "gpu[01-03,20],login1" is gpu01 gpu02 gpu03 gpu20
/// login1. A number keeps the width that its range begins with. Several bracket groups in one name
/// make every combination, the last group fastest; text may follow the last one. Pure. Throws
/// InputError naming the list and what is wrong with it: brackets that do not pair, a range that is
/// none, more than max_hosts names (said before any is made).
std::vector<std::string> expand_hosts(std::string_view list);

/// The short form of names, in their order, as `scontrol show hostlist` writes it: neighbours that
/// differ only in the number at their end share a bracket. expand_hosts() gives the names back.
/// Pure.
std::string compress_hosts(const std::vector<std::string>& names);

/// The names by the text before their last number, then by that number; numbers that are padded
/// with zeros stand behind those that are not. Names that occur twice stay. Pure.
std::vector<std::string> sorted_hosts(std::vector<std::string> names);

}  // namespace lockstep::cluster
