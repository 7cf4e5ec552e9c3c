#include "comm/direct/chunks.hpp"

#include <algorithm>

#include "lockstep/comm/staging.hpp"

namespace lockstep::comm {
namespace {

constexpr std::size_t line_bytes = 64;           // chunks start at cache lines
constexpr std::size_t least_chunk_bytes = 4096;  // below this, one owner is faster

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

Elements owned_chunk(const Elements& data, int rank, int world) {
  const std::size_t line = line_bytes / bytes_of(data.type);
  const std::size_t even =
      divide_up(divide_up(data.count, static_cast<std::size_t>(world)), line) * line;
  const std::size_t chunk = std::max(even, least_chunk_bytes / bytes_of(data.type));
  const std::size_t begin = std::min(data.count, chunk * static_cast<std::size_t>(rank));
  return data.part(begin, std::min(data.count - begin, chunk));
}

Elements equal_chunk(const Elements& data, int rank, int world) {
  const std::size_t chunk = data.count / static_cast<std::size_t>(world);
  return data.part(chunk * static_cast<std::size_t>(rank), chunk);
}

std::vector<Elements> pieces_of(const Elements& chunk) {
  // Of 16 bits as many as floats, because their sum needs floats.
  const std::size_t most = piece_bytes / std::max(sizeof(float), bytes_of(chunk.type));
  std::vector<Elements> pieces;
  for (std::size_t at = 0; at < chunk.count; at += most)
    pieces.push_back(chunk.part(at, std::min(most, chunk.count - at)));
  return pieces;
}

}  // namespace lockstep::comm
