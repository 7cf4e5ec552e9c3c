#pragma once

// What NCCL says about its own choices: the table that it logs with NCCL_DEBUG=INFO and
// NCCL_DEBUG_SUBSYS=TUNING.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::study {

/// One way to run one collective: NCCL expects it to take latency_us + bytes / bandwidth.
struct NcclChoice {
  std::string function;   ///< "AllReduce"
  std::string algorithm;  ///< "Tree", "Ring", "CollNetDirect", "NVLS", ...
  std::string protocol;   ///< "LL", "LL128", "Simple"
  double latency_us = 0;
  double gb_per_s = 0;  ///< 10^9 bytes; of the algorithm, not of the bus
};

/// The choices that this communicator has: those of the log's last table whose bandwidth is not 0.
/// Both forms are read: one line of headings (up to NCCL 2.16) and two. Empty where the log has no
/// table. Pure.
std::vector<NcclChoice> parse_nccl_table(std::string_view log);

/// What NCCL takes of these for that many bytes: the shortest time, where trees reach less than
/// their bandwidth at medium sizes. Empty without choices. Pure.
std::optional<NcclChoice> nccl_choice(const std::vector<NcclChoice>& choices,
                                      std::string_view function, double bytes);

/// How long it takes, in seconds.
double seconds_of(const NcclChoice& choice, double bytes);

/// The share of its bandwidth that a tree reaches at this size. Pure.
double tree_share(std::string_view protocol, double bytes);

}  // namespace lockstep::study
