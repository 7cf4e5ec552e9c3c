#pragma once

// Files that need not fit into memory.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "lockstep/base/files/files.hpp"

namespace lockstep {

/// read_in_pieces() of the first `most` bytes only.
void read_first(const std::filesystem::path& path, std::uint64_t most,
                const std::function<void(std::string_view)>& work);

/// Writes over the beginning of `path`; what the file holds after the text stays. Errors name
/// `wanted`. Throws as fail_by_system().
void overwrite(const std::filesystem::path& path, std::string_view text,
               const std::filesystem::path& wanted);

/// Makes `to` a copy of the file, as write_text_atomically() would.
void copy_atomically(const std::filesystem::path& from, const std::filesystem::path& to);

/// Makes `name` another name of the file, or a copy of it where the file system has no links. It
/// replaces what has the name, atomically.
void give_second_name(const std::filesystem::path& file, const std::filesystem::path& name);

/// Removes what other processes' PendingFiles left in a folder: those of files whose names end
/// with `of`. What cannot be removed stays.
void remove_temporaries(const std::filesystem::path& folder, const std::string& of);

/// A PendingFile that is written from its end: first pieces of what follows the first `begin`
/// bytes, which may be more than fits into memory, then these bytes. Methods throw as
/// fail_by_system(), naming the path. **Thread safety:** one thread at a time.
class PendingPieces {
 public:
  PendingPieces(std::filesystem::path path, std::uint64_t begin);
  /// Adds the next bytes. The system writes them to the disk meanwhile.
  void add(std::string_view piece);
  std::uint64_t added() const { return end_ - begin_; }
  /// Writes the beginning; then as PendingFile::commit() and publish().
  void commit(std::string_view beginning = {}) { complete(beginning).commit(); }
  bool publish() { return complete({}).publish(); }

 private:
  PendingFile& complete(std::string_view beginning);

  std::filesystem::path path_;
  PendingFile file_;
  Descriptor open_;
  std::uint64_t begin_, end_;
};

}  // namespace lockstep
