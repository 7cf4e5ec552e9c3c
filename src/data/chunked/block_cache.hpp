#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep::data {

/// Decoded blocks of rows, shared by all threads, up to a limit of bytes. The least recently used
/// block is dropped first. A block that several threads want at once is decoded by one of them.
///
/// **Thread safety:** all methods except those that say otherwise.
class BlockCache {
 public:
  struct Key {
    std::size_t file = 0, block = 0;
    auto operator<=>(const Key&) const = default;
  };
  using Decode = std::function<void(std::uint8_t* to)>;
  using Memory = std::unique_ptr<std::uint8_t[]>;

  /// Memory of dropped blocks, kept for new ones: new pages are slow.
  class Pool {
   public:
    Memory take(std::size_t bytes);
    void give(Memory memory, std::size_t bytes);

   private:
    struct Spare {
      Memory memory;
      std::size_t bytes = 0;
    };
    std::mutex mutex_;
    std::vector<Spare> spares_;
  };

  /// A block's bytes stay as they are as long as anyone holds this.
  struct Block {
    Block(std::shared_ptr<Pool> from, std::size_t size)
        : pool(std::move(from)), memory(pool->take(size)), bytes(size) {}
    ~Block() { pool->give(std::move(memory), bytes); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    std::shared_ptr<Pool> pool;
    Memory memory;
    std::size_t bytes = 0;
    bool ready = false;
    std::list<Key>::iterator place;  // in order of use
  };

  explicit BlockCache(std::size_t limit_bytes) : limit_(limit_bytes) {}
  std::size_t limit_bytes() const { return limit_; }
  /// A number for one more file. Not thread-safe: open all files before using blocks.
  std::size_t add_file() { return files_++; }

  /// The block, of `bytes` bytes: from the cache, or decoded by this thread; waits while another
  /// thread decodes it. Passes on what `decode` throws; the block then stays unknown.
  std::shared_ptr<const Block> get(Key key, std::size_t bytes, const Decode& decode);
  /// The same for a block that will soon be wanted; does nothing when it is in the cache or being
  /// decoded. True when this call decoded it.
  bool prepare(Key key, std::size_t bytes, const Decode& decode);

 private:
  std::shared_ptr<Block> claim(Key key, std::size_t bytes);
  void decode_claimed(Key key, Block& block, const Decode& decode);
  void make_room();

  const std::size_t limit_;
  std::size_t files_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::shared_ptr<Block>> blocks_;
  std::list<Key> by_use_;  // the newest first
  std::size_t held_ = 0;   // bytes
  const std::shared_ptr<Pool> pool_ = std::make_shared<Pool>();
};

}  // namespace lockstep::data
