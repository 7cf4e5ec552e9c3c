#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/bytes/mapping.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::data {

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

}  // namespace lockstep::data
