#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <span>
#include <thread>
#include <vector>

#include "shard_file.hpp"

namespace lockstep::data {

/// Has parts of contiguous files copied to the node by a thread of its own.
class Stager {
 public:
  /// Bytes of a file, counted from where its rows begin.
  struct Part {
    std::size_t file = 0;
    std::uint64_t begin = 0, end = 0;
  };
  ~Stager() { stop(); }
  /// See DataSet::stage(). `files` must outlive this or its stop().
  Staging begin(std::span<ShardFile> files, const std::filesystem::path& directory,
                std::span<const Part> parts, std::uint64_t promised = 0);
  void stop();
  double share() const;

 private:
  struct Piece {
    StagedFile* file = nullptr;
    std::uint64_t piece = 0;
  };
  void run();

  std::vector<Piece> pieces_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace lockstep::data
