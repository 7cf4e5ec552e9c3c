#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "data/bytes/mapping.hpp"
#include "data/bytes/staged_file.hpp"
#include "lockstep/base/file_stamp.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::data {

/// Bytes of a file, counted from where its rows begin.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

/// Rows that lie in one piece in an open file, read past HDF5: with pread, from pages that all
/// processes of the node share, or from a copy on this node. This class alone chooses, and judges
/// whether what was read can be trusted.
///
/// Thread safety: all but map(), stage() and unstage(), which come before the first reading.
class FileBytes {
 public:
  /// The piece is `length` bytes from `begin` on; offsets count from there. `checksums`: its rows
  /// have some, which tell whether bytes have changed; else the file's stamp must. Throws
  /// InputError when the bytes are not there.
  FileBytes(std::filesystem::path path, std::uint64_t begin, std::uint64_t length, bool checksums);

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t begin() const { return begin_; }
  /// Reads bytes that belong to row `row`. Throws InputError naming the file and the row.
  void read(std::size_t row, std::uint64_t offset, std::span<std::uint8_t> to) const;
  /// The same bytes without copying them, where the file is mapped; null where it is not. All of
  /// their pages were there a moment ago; require_read() after their use says whether they still
  /// were.
  const std::uint8_t* mapped(std::size_t row, std::uint64_t offset, std::size_t bytes) const;
  /// Throws InputError naming file and row when what was read cannot be trusted: pages were gone,
  /// or a file without checksums has changed since it was opened.
  void require_read(std::size_t row) const;
  /// Asks for the bytes ahead of need: from the copy's original, or from the disk.
  void ask_for(std::uint64_t offset, std::size_t bytes) const;

  /// From now on bytes are read from mapped pages: of the copy if there is one.
  void map();
  /// From now on bytes are read from a copy in `directory`.
  StagedFile& stage(const std::filesystem::path& directory);
  void unstage() { staged_.reset(); }
  const StagedFile* staged() const { return staged_.get(); }  ///< null: there is no copy

 private:
  [[noreturn]] void refuse(std::string_view what) const;
  [[noreturn]] void refuse_unread(std::size_t row, std::string_view why, bool in_copy) const;

  std::filesystem::path path_;
  std::uint64_t begin_;
  bool checksums_;
  Owned<int, ::close, -1> descriptor_;
  FileStamp stamp_;                     // as it was when it was opened
  std::unique_ptr<StagedFile> staged_;  // the copy that is read in place of it
  std::unique_ptr<Mapping> mapping_;    // of the copy, else of the file
};

}  // namespace lockstep::data
