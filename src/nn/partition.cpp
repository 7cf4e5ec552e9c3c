#include "lockstep/nn/partition.hpp"

#include <algorithm>

namespace lockstep::nn {

std::vector<std::size_t> cut_points(const Network& network) {
  const auto read_by = readers(network);
  std::vector<std::size_t> cuts;
  std::size_t last_reader = 0;  // of all values before node i
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    if (i > 0 && last_reader <= i && !read_by[i].empty()) cuts.push_back(i);
    for (const std::size_t reader : read_by[i]) last_reader = std::max(last_reader, reader);
  }
  return cuts;
}

}  // namespace lockstep::nn
