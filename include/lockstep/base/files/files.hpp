#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "lockstep/base/files/io.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep {

/// A file that appears at `path` complete or not at all. Write to temporary(), an empty file in the
/// same directory; commit() syncs it, renames it and syncs the directory. If it is destroyed
/// without commit() or publish(), no file is left. It may take the spare descriptors. What writes
/// here throws as fail_by_system(), naming the path.
class PendingFile {
 public:
  explicit PendingFile(std::filesystem::path path);
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  const std::filesystem::path& temporary() const { return temporary_; }
  void commit();
  /// As commit(), but never replaces a file: false where `path` exists already, which then stays as
  /// it is. Of several processes that publish at once, on any machines that share the folder, one
  /// gets true.
  bool publish();

 private:
  SpareDescriptors spare_;
  std::filesystem::path path_, temporary_;
};

/// Writes a file that appears at `path` complete or not at all: through a temporary file in the
/// same directory, then sync, rename and sync of the directory. On any failure (disk full,
/// permission) the temporary file is removed, and the old file at `path` stays as it was.
void write_text_atomically(const std::filesystem::path& path, std::string_view text);

/// The same, unless `path` exists already: see PendingFile::publish().
bool publish_text(const std::filesystem::path& path, std::string_view text);

/// Reserves disk space, in a separate file, for a text that must be written even when the disk is
/// full.
void reserve_room(const std::filesystem::path& room, std::size_t bytes);

/// Writes the text into the reserved file and renames that to `path`. If the text fits, no new
/// block is needed, except on copy-on-write file systems.
void write_into_room(const std::filesystem::path& room, const std::filesystem::path& path,
                     std::string_view text);

/// write_text_atomically() for a path that a user gave: a link is followed, and anything that is
/// not a regular file (/dev/stdout, a pipe) is written to directly.
void write_report(const std::filesystem::path& path, std::string_view text);

/// Call it before the work that the report describes: makes the folder of `path`, and throws
/// InputError when `path` cannot be written or is one of the files that are read.
void require_report_fits(const std::filesystem::path& path,
                         const std::vector<std::filesystem::path>& inputs = {});

/// The same for a file that is only replaced where the user says so, by --force.
void require_new_report(const std::filesystem::path& path,
                        const std::vector<std::filesystem::path>& inputs, bool force);

/// Opens a file to be read, one that a user named or that lies in a folder of ours; with more flags
/// also to be written (O_CREAT makes it with mode 0644). Never waits: a pipe without a writer would
/// keep open() and then the process for ever. Empty, with errno, when it cannot be opened. Throws
/// InputError naming the path when it is neither a regular file nor a folder.
Descriptor open_regular(const std::filesystem::path& path, int more_flags = 0);

/// The same check for libraries that open a file by its name: throws InputError naming the path
/// when it is there, and is neither a regular file nor a folder.
void require_regular(const std::filesystem::path& path);

/// Calls work(bytes) for one piece of the file after the other, each as long as the first but the
/// last. Throws InputError naming the path and the reason.
void read_in_pieces(const std::filesystem::path& path,
                    const std::function<void(std::string_view)>& work);

/// The whole file as text. Throws InputError naming the path and the reason.
std::string read_text(const std::filesystem::path& path);

/// Creates the directory and its parents, and syncs what holds them, so that they outlive a crash
/// of the machine. Throws as fail_by_system().
void make_directories(const std::filesystem::path& path);

/// Raises the soft limit of open files by `more`, at most to the hard limit. The usual soft limit
/// (1024) only protects programs that use select().
void allow_open_files(std::size_t more);

/// "12.3 MB": bytes for a human, powers of 1000.
std::string human_bytes(double bytes);

/// "1:23:45" or "2:05" or "8.1 s": a duration for a human.
std::string human_seconds(double seconds);

/// Resident memory of this process now, bytes; 0 where /proc does not say it.
std::size_t resident_bytes();

/// Peak resident memory of this process, bytes (VmHWM).
std::size_t peak_resident_bytes();

}  // namespace lockstep
