#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

/// A file that appears at `path` whole or not at all: it is filled under temporary(), an empty file
/// beside it, and commit() synchronises it, renames it and synchronises its directory. Destroyed
/// without commit() it leaves nothing behind. Throws InputError naming the path and the system's
/// reason.
class PendingFile {
 public:
  explicit PendingFile(std::filesystem::path path);
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  const std::filesystem::path& temporary() const { return temporary_; }
  void commit();

 private:
  std::filesystem::path path_, temporary_;
};

/// Makes `path` appear whole or not at all: by a temporary file beside it, which is synchronised,
/// renamed and its directory synchronised. When anything fails (disk full, permission) the
/// temporary file is removed, what stood at `path` before is untouched, and InputError names the
/// path and the system's reason.
void write_text_atomically(const std::filesystem::path& path, std::string_view text);

/// Keeps room on the disk, in a file of its own, for a text that must be written when there may be
/// no more. Throws InputError as above.
void reserve_room(const std::filesystem::path& room, std::size_t bytes);

/// Writes the text where room was kept for it, and makes that file `path`: no new block is needed
/// where it fits, but on file systems that copy on write. Throws InputError naming `path`.
void write_into_room(const std::filesystem::path& room, const std::filesystem::path& path,
                     std::string_view text);

/// write_text_atomically() for a path that a user gave: a link is followed, and what is no regular
/// file
/// (/dev/stdout, a pipe) is written to as it is.
void write_report(const std::filesystem::path& path, std::string_view text);

/// Before the work that a report is of: throws InputError when `path` cannot be written, or is one
/// of the files that are read.
void require_report_fits(const std::filesystem::path& path,
                         const std::vector<std::filesystem::path>& inputs = {});

/// The whole file as text. Throws InputError naming the path and the reason.
std::string read_text(const std::filesystem::path& path);

/// Creates the directory and its parents. Throws InputError naming the path and the reason.
void make_directories(const std::filesystem::path& path);

/// Raises the soft limit of open files by `more`, as far as the hard one lets it be: the usual one
/// (1024) only protects programs that use select().
void allow_open_files(std::size_t more);

/// "12.3 MB": bytes for a human, powers of 1000.
std::string human_bytes(double bytes);

/// "1:23:45" or "2:05" or "8.1 s": a duration for a human.
std::string human_seconds(double seconds);

/// Peak resident memory of this process, bytes (VmHWM).
std::size_t peak_resident_bytes();

}  // namespace lockstep
