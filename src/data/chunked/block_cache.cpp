#include "data/chunked/block_cache.hpp"

#include <algorithm>

namespace lockstep::data {

namespace {
constexpr std::size_t most_spares = 4;
}

BlockCache::Memory BlockCache::Pool::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(spares_.begin(), spares_.end(),
                                  [&](const Spare& spare) { return spare.bytes == bytes; });
  if (found == spares_.end()) {
    spares_.clear();
    return std::make_unique_for_overwrite<std::uint8_t[]>(bytes);
  }
  Memory memory = std::move(found->memory);
  spares_.erase(found);
  return memory;
}

void BlockCache::Pool::give(Memory memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (spares_.size() < most_spares) spares_.push_back({std::move(memory), bytes});
}

// claim() and make_room() are called with the mutex held.
std::shared_ptr<BlockCache::Block> BlockCache::claim(Key key, std::size_t bytes) {
  held_ += bytes;
  make_room();
  auto block = std::make_shared<Block>(pool_, bytes);
  by_use_.push_front(key);
  block->place = by_use_.begin();
  blocks_.emplace(key, block);
  return block;
}

void BlockCache::make_room() {
  for (auto at = by_use_.end(); held_ > limit_ && at != by_use_.begin();) {
    --at;
    const auto found = blocks_.find(*at);
    if (!found->second->ready) continue;
    held_ -= found->second->bytes;
    blocks_.erase(found);
    at = by_use_.erase(at);
  }
}

void BlockCache::decode_claimed(Key key, Block& block, const Decode& decode) {
  try {
    decode(block.memory.get());
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      held_ -= block.bytes;
      by_use_.erase(block.place);
      blocks_.erase(key);
    }
    changed_.notify_all();
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    block.ready = true;
  }
  changed_.notify_all();
}

std::shared_ptr<const BlockCache::Block> BlockCache::get(Key key, std::size_t bytes,
                                                         const Decode& decode) {
  std::shared_ptr<Block> block;
  {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto found = blocks_.find(key);
      if (found == blocks_.end()) break;
      if (found->second->ready) {
        by_use_.splice(by_use_.begin(), by_use_, found->second->place);
        return found->second;
      }
      changed_.wait(lock);
    }
    block = claim(key, bytes);
  }
  decode_claimed(key, *block, decode);
  return block;
}

bool BlockCache::prepare(Key key, std::size_t bytes, const Decode& decode) {
  std::shared_ptr<Block> block;
  {
    const std::lock_guard lock(mutex_);
    if (blocks_.contains(key)) return false;
    block = claim(key, bytes);
  }
  decode_claimed(key, *block, decode);
  return true;
}

}  // namespace lockstep::data
