#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "data/bytes/copied_file.hpp"
#include "data/bytes/mapping.hpp"
#include "lockstep/base/files/file_stamp.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// Bytes of a file, counted from where its rows begin.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

/// Rows that lie in one piece in an open file, read without HDF5: with pread, from pages that all
/// processes of the node share, or from a copy on this node. Only this class chooses the way, and
/// decides whether the bytes can be trusted.
///
/// **Thread safety:** all methods except map(), copy_to() and drop_copy(), which come before the
/// first read.
class FileBytes {
 public:
  /// The piece is `length` bytes from `begin`; offsets count from there. `checksums`: its rows have
  /// checksums that show changed bytes; otherwise the file's stamp must show them. Throws
  /// InputError when the file is too short.
  FileBytes(std::filesystem::path path, std::uint64_t begin, std::uint64_t length, bool checksums);

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t begin() const { return begin_; }
  /// Reads bytes that belong to row `row`. Throws InputError naming the file and the row.
  void read(std::size_t row, std::uint64_t offset, std::span<std::uint8_t> to) const;
  /// The same bytes without a copy, where the file is mapped; null where it is not. All of their
  /// pages were there a moment ago; call require_read() after use to learn whether they still are.
  const std::uint8_t* mapped(std::size_t row, std::uint64_t offset, std::size_t bytes) const;
  /// Throws InputError naming file and row when the bytes cannot be trusted: pages were gone, or a
  /// file without checksums has changed since it was opened.
  void require_read(std::size_t row) const;
  /// Asks for bytes ahead of need: for the copy from its original, or from the disk.
  void ask_for(std::uint64_t offset, std::size_t bytes) const;

  /// From now on bytes are read from mapped pages: of the copy if there is one.
  void map();
  /// From now on bytes are read from a copy in `directory`.
  CopiedFile& copy_to(const std::filesystem::path& directory);
  void drop_copy() { copy_.reset(); }
  const CopiedFile* copied() const { return copy_.get(); }  ///< null: there is no copy

 private:
  [[noreturn]] void refuse(std::string_view what) const;
  [[noreturn]] void refuse_unread(std::size_t row, std::string_view why, bool in_copy) const;

  std::filesystem::path path_;
  std::uint64_t begin_;
  bool checksums_;
  Descriptor descriptor_;
  FileStamp stamp_;                   // at the time of opening
  std::unique_ptr<CopiedFile> copy_;  // the copy that is read instead
  std::unique_ptr<Mapping> mapping_;  // of the copy, else of the file
};

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
