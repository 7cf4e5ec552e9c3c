#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep {

/// Shows whether a file has been written again since it was opened.
struct FileStamp {
  std::uint64_t bytes = 0, inode = 0;
  std::int64_t modified_ns = 0;
  /// Also of another mode, owner or name: not compared, because its bytes are the same then.
  std::int64_t touched_ns = 0;
  bool operator==(const FileStamp& other) const {
    return bytes == other.bytes && inode == other.inode && modified_ns == other.modified_ns;
  }
};

/// The stamp of an open file. Throws InputError naming `path`.
FileStamp stamp_of(int descriptor, const std::filesystem::path& path);
/// The stamp of the file that has this name now. Throws InputError naming it.
FileStamp stamp_of(const std::filesystem::path& path);

/// When the two differ, throws InputError: "<path>: row 17 cannot be read: <file> has become
/// shorter (has been changed) since it was opened". `rows`: "row 17".
void require_same(const FileStamp& now, const FileStamp& then, const std::filesystem::path& path,
                  const std::string& rows, const std::string& file = "the file");

}  // namespace lockstep
