#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// Guards a mapped file whose pages may fail because the file was cut off or its disk does not
/// answer. There the kernel would end the process (SIGBUS). Instead, the pages from there on become
/// zeros and failed() is true from then on; callers ask it after reading. A few thousand guards can
/// exist; further ones guard nothing. Other faults are handled as before. Where the map is shared
/// and `writable`, what is written to such pages is this process's alone.
///
/// **Thread safety:** all of it.
class FaultGuard {
 public:
  /// Guards `bytes` from `begin`, the start of a page, until this is destroyed; they must stay
  /// mapped until then.
  FaultGuard(void* begin, std::size_t bytes, bool writable = false);
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;
  bool failed() const;

 private:
  std::size_t slot_;
};

/// Pages of a file that all processes of the node share. Pages that cannot be read become zeros;
/// failed() tells after the read.
class Mapping {
 public:
  /// Throws InputError naming `name`.
  Mapping(int descriptor, const std::string& name);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  /// Null when the file no longer has them.
  const std::uint8_t* bytes(std::uint64_t begin, std::uint64_t end) const;
  bool failed() const { return guard_ && guard_->failed(); }

 private:
  int descriptor_;
  void* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::optional<FaultGuard> guard_;  // ends before the mapping does
};

/// A file's copy in a directory of this node, made piece by piece on demand by all processes of the
/// node together. A table next to the copy, mapped by all of them, says which pieces are there and
/// which process copies which, so that no piece is read from the original twice. An existing copy
/// is used if it is of the same file as it is now and was made since this machine was started.
///
/// **Thread safety:** all of it.
class CopiedFile {
 public:
  static constexpr std::uint64_t piece_bytes = 1 << 20;

  /// Starts or joins the copy of `original`, open as `descriptor`, in `directory` (which is made if
  /// need be, for this user alone). `patience_s`: how long to wait for another process that copies
  /// a piece; its pieces are then read from the original. Throws InputError naming what cannot be
  /// made, or was cut off.
  CopiedFile(const std::filesystem::path& original, int descriptor,
             const std::filesystem::path& directory, double patience_s = 30);
  ~CopiedFile();
  CopiedFile(const CopiedFile&) = delete;
  CopiedFile& operator=(const CopiedFile&) = delete;

  std::uint64_t size() const { return size_; }
  std::uint64_t pieces() const { return (size_ + piece_bytes - 1) / piece_bytes; }
  bool is_there(std::uint64_t piece) const;
  /// Makes sure that bytes [begin, end) are in the copy, by copying or by waiting for another
  /// process. False when that fails: then read the original.
  bool ensure(std::uint64_t begin, std::uint64_t end);
  /// Copies a piece, unless it is there or another process copies it. False when copying was given
  /// up.
  bool copy(std::uint64_t piece);
  int descriptor() const { return copy_.get(); }
  const std::filesystem::path& path() const { return path_; }  ///< of the copy
  /// Why copying was given up; empty: nothing is wrong.
  std::string problem() const;

 private:
  std::filesystem::path table() const { return path_.string() + ".pieces"; }
  void map_table(int descriptor);
  void open_copy();
  bool given_up();
  bool copy_claimed(std::uint64_t piece);
  bool ensure_piece(std::uint64_t piece);
  std::atomic_ref<std::uint64_t> state(std::uint64_t piece) const;

  int original_;
  double patience_s_;
  std::uint64_t mine_;  // what this process writes into the table for a piece that it copies
  std::uint64_t size_ = 0;
  std::filesystem::path path_;  // of the copy
  Descriptor copy_;
  void* table_ = nullptr;  // mapped
  std::size_t table_bytes_ = 0;
  std::optional<FaultGuard> guard_;            // of the table, which may be cut off
  std::atomic<int> error_{0};                  // errno of the first failure
  std::atomic<std::uint64_t> stuck_claim_{0};  // of a process that was waited for in vain
};

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
