#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::comm {

/// Bytes per message: few enough to be added while they are in the cache, enough to make a
/// message's overhead small.
constexpr std::size_t piece_bytes = std::size_t{128} << 10;

/// Holds another rank's piece until it is added, or a piece's sum.
struct alignas(64) Block {
  std::array<std::byte, piece_bytes> bytes;
  float* floats() { return reinterpret_cast<float*>(bytes.data()); }
};

/// Reuses blocks, so that their pages and cache lines stay warm.
class Staging {
 public:
  std::unique_ptr<Block> take() {
    if (spare_.empty()) return std::make_unique<Block>();
    std::unique_ptr<Block> block = std::move(spare_.back());
    spare_.pop_back();
    return block;
  }
  void give_back(std::unique_ptr<Block> block) { spare_.push_back(std::move(block)); }

 private:
  std::vector<std::unique_ptr<Block>> spare_;
};

}  // namespace lockstep::comm
