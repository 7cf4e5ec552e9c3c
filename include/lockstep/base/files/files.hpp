#pragma once

#include <cstddef>
#include <cstdint>
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

/// Throws as make_directories() where that is certain to; makes nothing.
void require_makable(const std::filesystem::path& path);

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

/// Makes durable that `path` is the name of a file: syncs its folder, where the file system can
/// sync folders and this user may open it. False, with errno, when that fails.
bool synchronise_folder_of(const std::filesystem::path& path);

/// Gives the file a further name, or only this one where there are no hard links. Of several
/// processes that give one name at once, one gets true; the others, and later ones, get false, with
/// errno: EEXIST, and nothing is replaced. Only where the file system has neither links nor a
/// rename that replaces nothing, and the processes are on several machines, may several get true.
bool give_new_name(const std::filesystem::path& from, const std::filesystem::path& to);

/// Gives the file the name `to`, replaces what has it, and syncs the folder of `to`, so that the
/// new name outlives a crash of the machine. Sync what the file holds before. Throws as
/// fail_by_system().
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// Gives the file the first free one of the names `to`, `to`-2, `to`-3, ... in the same folder, and
/// syncs the folder. Replaces nothing; where the file system cannot promise that, only one process
/// at a time may call it. Returns the name. Throws as fail_by_system().
std::filesystem::path rename_to_free(const std::filesystem::path& from,
                                     const std::filesystem::path& to);

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

// Files that need not fit into memory.

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
