#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep {

/// What tells a file from what it becomes when it is written again.
struct FileStamp {
  std::uint64_t bytes = 0, inode = 0;
  std::int64_t modified_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

/// Of an open file. Throws InputError naming `path`.
FileStamp stamp_of(int descriptor, const std::filesystem::path& path);
/// Of the file that has this name now. Throws InputError naming it.
FileStamp stamp_of(const std::filesystem::path& path);

/// Throws InputError: "<path>: row 17 cannot be read: <file> has become shorter (has been changed)
/// since it was opened", when the two differ. `rows`: "row 17".
void require_same(const FileStamp& now, const FileStamp& then, const std::filesystem::path& path,
                  const std::string& rows, const std::string& file = "the file");

}  // namespace lockstep
