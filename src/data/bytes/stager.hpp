#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <span>
#include <thread>
#include <vector>

#include "data/bytes/file_bytes.hpp"
#include "lockstep/data/staging.hpp"

namespace lockstep::data {

/// Copies parts of contiguous files to the node in a separate thread.
class Stager {
 public:
  struct Part {
    std::size_t file = 0;  ///< index into `files`
    ByteRange bytes;
  };
  ~Stager() { stop(); }
  /// See DataSet::stage(). `files` must outlive this or its stop().
  Staging begin(std::span<FileBytes* const> files, const std::filesystem::path& directory,
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
