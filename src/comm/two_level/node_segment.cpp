#include "comm/two_level/node_segment.hpp"

namespace lockstep::comm {
namespace {

constexpr std::size_t page = 4096;

std::size_t whole_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

std::size_t slot_bytes(std::size_t floats) { return whole_pages(floats * sizeof(float)); }

}  // namespace

std::size_t NodeSegment::bytes(std::size_t ranks, std::size_t slot_floats) {
  return whole_pages(ranks * sizeof(Counts)) + ranks * slots * slot_bytes(slot_floats);
}

float* NodeSegment::slot(std::size_t rank, std::uint64_t sum) const {
  std::byte* all = memory_.data() + whole_pages(ranks_ * sizeof(Counts));
  return reinterpret_cast<float*>(all + (rank * slots + sum % slots) * slot_bytes(slot_floats_));
}

// The memory begins with zeros, which are counts of 0.
NodeSegment::Count& NodeSegment::count(std::size_t rank, Mark mark) const {
  return reinterpret_cast<Counts*>(memory_.data())[rank].of_mark[static_cast<std::size_t>(mark)];
}

std::vector<std::size_t> NodeSegment::missing(Mark mark, std::uint64_t sum) const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < ranks_; ++rank)
    if (count(rank, mark).load() <= sum) ranks.push_back(rank);
  return ranks;
}

}  // namespace lockstep::comm
