#pragma once

#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/nodes.hpp"

namespace lockstep::test {

/// The ranks in the order of `sizes`: 2, 1 are ranks 0 and 1 on one node and rank 2 on another.
inline comm::Nodes blocks(const std::vector<int>& sizes) {
  std::vector<comm::RankPlace> places;
  for (std::size_t node = 0; node < sizes.size(); ++node)
    places.insert(places.end(), static_cast<std::size_t>(sizes[node]),
                  {"machine", "node" + std::to_string(node)});
  return comm::Nodes(places);
}

/// Calls; meanwhile this process can open no file if it is `stricken`.
template <class Call>
void with_no_more_files(bool stricken, const Call& call) {
  rlimit usual{};
  const int next = ::dup(STDERR_FILENO);
  ::close(next);
  check(next > 0 && ::getrlimit(RLIMIT_NOFILE, &usual) == 0, "no limit of open files");
  const rlimit full{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = usual.rlim_max};
  if (stricken) ::setrlimit(RLIMIT_NOFILE, &full);
  try {
    call();
  } catch (...) {
    ::setrlimit(RLIMIT_NOFILE, &usual);
    throw;
  }
  ::setrlimit(RLIMIT_NOFILE, &usual);
}

}  // namespace lockstep::test
