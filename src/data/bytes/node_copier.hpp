#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <span>
#include <thread>
#include <vector>

#include "data/bytes/file_bytes.hpp"
#include "lockstep/data/node_copy.hpp"

namespace lockstep::data {

/// Copies parts of contiguous files to the node in a separate thread.
class NodeCopier {
 public:
  struct FilePart {
    std::size_t file = 0;  ///< index into `files`
    ByteRange bytes;
  };
  ~NodeCopier() { stop(); }
  /// See DataSet::copy_to(). `files` must outlive this or its stop().
  NodeCopy begin(std::span<FileBytes* const> files, const std::filesystem::path& directory,
                 std::span<const FilePart> parts, std::uint64_t promised = 0);
  void stop();
  double share() const;

 private:
  struct FilePiece {
    CopiedFile* file = nullptr;
    std::uint64_t piece = 0;
  };
  void run();

  std::vector<FilePiece> pieces_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace lockstep::data
