#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cluster {

/// The most names in one list: Slurm's own limit for a range.
inline constexpr std::size_t max_hosts = 65536;

/// The names in Slurm's short form, in order: "gpu[01-03,20],login1" is gpu01 gpu02 gpu03 gpu20
/// login1. A number keeps the width that its range begins with. Several bracket groups in one name
/// give every combination, the last group fastest; text may follow the last one. Throws InputError
/// naming the list and its fault: unpaired brackets, a bad range, or more than max_hosts names
/// (checked before any name is made). Pure.
std::vector<std::string> expand_hosts(std::string_view list);

/// The short form of names, in their order, as `scontrol show hostlist` writes it: neighbours that
/// differ only in the number at their end share a bracket. expand_hosts() reverses it. Pure.
std::string compress_hosts(const std::vector<std::string>& names);

/// Sorts by the text before a name's last number, then by that number; numbers that are padded with
/// zeros come after those that are not. Keeps names that occur twice. Pure.
std::vector<std::string> sorted_hosts(std::vector<std::string> names);

}  // namespace lockstep::cluster
