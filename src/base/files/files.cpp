#include "lockstep/base/files/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/room.hpp"

namespace lockstep {
namespace {

[[noreturn]] void cannot_write(const std::filesystem::path& path) {
  fail_by_system("cannot write " + path.string(), errno);
}

void synchronise(const std::filesystem::path& path, const std::filesystem::path& destination) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || ::fsync(file.get()) != 0) cannot_write(destination);
}

/// What the names of this process's temporary files have after that of the file.
std::string temporary_suffix() { return fmt::format(".tmp{}-", ::getpid()); }

std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  static std::atomic<unsigned> counter{0};
  std::filesystem::path temporary = path;
  temporary += temporary_suffix() + std::to_string(counter++);
  return temporary;
}

/// Large texts go past the page cache, where the file system can do that: the pages would cost the
/// cores that a training computes on many times what the disk does. Returns how many bytes it
/// wrote, whole blocks of the beginning; the next write continues there. What stopped it, where
/// that is an error, stops an ordinary write, too.
std::size_t write_past_cache(int file, std::string_view text) {
  constexpr std::size_t block = 4096;  // of disks, whatever the system's pages are
  constexpr std::size_t worth_it = std::size_t{4} << 20;
  if (text.size() < worth_it || reinterpret_cast<std::uintptr_t>(text.data()) % block != 0)
    return 0;
  const int flags = ::fcntl(file, F_GETFL);
  if (flags < 0 || ::fcntl(file, F_SETFL, flags | O_DIRECT) != 0) return 0;
  const std::size_t done =
      write_all(file, text.data(), text.size() / block * block) / block * block;
  ::fcntl(file, F_SETFL, flags);
  ::lseek(file, static_cast<off_t>(done), SEEK_SET);
  return done;
}

void require_regular(const std::filesystem::path& path, const struct stat& status) {
  if (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) return;
  const char* what = S_ISFIFO(status.st_mode)   ? "a pipe"
                     : S_ISSOCK(status.st_mode) ? "a socket"
                                                : "a device";
  throw InputError(fmt::format("{}: is {}, and not a regular file", path.string(), what));
}

}  // namespace

void overwrite(const std::filesystem::path& path, std::string_view text,
               const std::filesystem::path& wanted) {
  const Descriptor out(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!out) cannot_write(wanted);
  text.remove_prefix(write_past_cache(out.get(), text));
  if (write_all(out.get(), text.data(), text.size()) != text.size()) cannot_write(wanted);
}

// A name may be taken: containers that share a folder have processes of one number.
PendingFile::PendingFile(std::filesystem::path path) : path_(std::move(path)) {
  for (;;) {
    temporary_ = temporary_beside(path_);
    const Descriptor file(
        ::open(temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666));
    if (file) return;
    if (errno != EEXIST) cannot_write(path_);
  }
}

void remove_temporaries(const std::filesystem::path& folder, const std::string& of) {
  std::error_code none;
  for (std::filesystem::directory_iterator at(folder, none), end; !none && at != end;
       at.increment(none)) {
    const std::string name = at->path().filename().string();
    const bool own = name.find(temporary_suffix()) != name.npos;
    if (!own && name.find(of + ".tmp") != name.npos) std::filesystem::remove(at->path(), none);
  }
}

PendingFile::~PendingFile() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void PendingFile::commit() {
  synchronise(temporary_, path_);
  rename_durably(temporary_, path_);
  temporary_.clear();
}

bool PendingFile::publish() {
  synchronise(temporary_, path_);
  if (!give_new_name(temporary_, path_)) {
    if (errno == EEXIST) return false;
    cannot_write(path_);
  }
  if (!synchronise_folder_of(path_)) cannot_write(path_);
  return true;
}

void write_text_atomically(const std::filesystem::path& path, std::string_view text) {
  PendingFile file(path);
  overwrite(file.temporary(), text, path);
  file.commit();
}

bool publish_text(const std::filesystem::path& path, std::string_view text) {
  PendingFile file(path);
  overwrite(file.temporary(), text, path);
  return file.publish();
}

void reserve_room(const std::filesystem::path& room, std::size_t bytes) {
  write_text_atomically(room, std::string(bytes, '\n'));
}

void write_into_room(const std::filesystem::path& room, const std::filesystem::path& path,
                     std::string_view text) {
  overwrite(room, text, path);
  if (::truncate(room.c_str(), static_cast<off_t>(text.size())) != 0) cannot_write(path);
  synchronise(room, path);
  rename_durably(room, path);
}

void write_report(const std::filesystem::path& path, std::string_view text) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return write_text_atomically(path, text);
  if (!std::filesystem::is_regular_file(path, none)) return overwrite(path, text, path);
  write_text_atomically(std::filesystem::canonical(path), text);
}

void require_report_fits(const std::filesystem::path& path,
                         const std::vector<std::filesystem::path>& inputs) {
  std::error_code none;
  for (const std::filesystem::path& input : inputs)
    require(!std::filesystem::equivalent(path, input, none),
            fmt::format("cannot write the report to {}: it is an input file", path.string()));
  require(!std::filesystem::is_directory(path, none),
          fmt::format("cannot write {}: it is a directory", path.string()));
  if (path.has_parent_path()) make_directories(path.parent_path());
  const bool special =
      std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none);
  if (!special) const PendingFile tried(path);
}

void require_new_report(const std::filesystem::path& path,
                        const std::vector<std::filesystem::path>& inputs, bool force) {
  require_report_fits(path, inputs);
  require(force || !std::filesystem::exists(path),
          fmt::format("{}: is there already; --force writes over it", path.string()));
}

Descriptor open_regular(const std::filesystem::path& path, int more_flags) {
  const int flags = O_RDONLY | O_CLOEXEC | more_flags;
  Descriptor file(::open(path.c_str(), flags | O_NONBLOCK, 0644));
  if (!file && errno == ENXIO) require_regular(path);  // a socket
  // A file that another machine holds a lease of: it gives that back.
  if (!file && errno == EWOULDBLOCK) {
    require_regular(path);
    file = Descriptor(::open(path.c_str(), flags, 0644));
  }
  struct stat status {};
  if (file && ::fstat(file.get(), &status) == 0) require_regular(path, status);
  return file;
}

void require_regular(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) require_regular(path, status);
}

namespace {

[[noreturn]] void fail_to_read(const std::filesystem::path& path) {
  throw InputError(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
}

}  // namespace

void read_first(const std::filesystem::path& path, std::uint64_t most,
                const std::function<void(std::string_view)>& work) {
  // We want the system's reason, and a directory can be opened but not read: hence no stream.
  const Descriptor file = open_regular(path);
  if (!file) fail_to_read(path);
  char buffer[1 << 16];
  while (most > 0) {
    const std::size_t wanted = std::min<std::uint64_t>(sizeof buffer, most);
    const std::size_t got = read_all(file.get(), buffer, wanted);
    if (got < wanted && errno != 0) fail_to_read(path);
    if (got > 0) work({buffer, got});
    if (got < wanted) return;
    most -= got;
  }
}

void read_in_pieces(const std::filesystem::path& path,
                    const std::function<void(std::string_view)>& work) {
  read_first(path, ~std::uint64_t{0}, work);
}

std::string read_text(const std::filesystem::path& path) {
  std::string text;
  read_in_pieces(path, [&text](std::string_view piece) { text += piece; });
  return text;
}

void make_directories(const std::filesystem::path& path) {
  std::error_code error;
  std::vector<std::filesystem::path> made;  // the innermost first
  for (std::filesystem::path at = path; !at.empty() && !std::filesystem::exists(at, error);
       at = at.parent_path())
    if (at.has_filename()) made.push_back(at);
  std::filesystem::create_directories(path, error);
  if (error) fail_by_system("cannot create the directory " + path.string(), error.value());
  for (const std::filesystem::path& folder : made)
    if (!synchronise_folder_of(folder))
      fail_by_system("cannot create the directory " + folder.string(), errno);
}

void require_makable(const std::filesystem::path& path) {
  std::error_code none;
  std::filesystem::path there = path;
  while (!there.empty() && !std::filesystem::exists(there, none)) there = there.parent_path();
  if (there.empty()) there = ".";
  struct statfs facts {};
  const bool of_kernel = ::statfs(there.c_str(), &facts) == 0 &&
                         (facts.f_type == PROC_SUPER_MAGIC || facts.f_type == SYSFS_MAGIC);
  int fault = ::access(there.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
  if (!std::filesystem::is_directory(there, none)) fault = ENOTDIR;
  if (fault == 0 && of_kernel && there != path) fault = ENOENT;
  if (fault != 0) fail_by_system("cannot create the directory " + path.string(), fault);
}

void allow_open_files(std::size_t more) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, limit.rlim_cur + more);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string human_bytes(double bytes) {
  static constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t unit = 0;
  // Otherwise 999.95 would be printed as 1000.0.
  for (; std::abs(bytes) >= (unit == 0 ? 999.5 : 999.95) && unit + 1 < std::size(units); ++unit) {
    bytes /= 1000;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e12) return "unknown";
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const long long whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0, resident_pages = 0;
  statm >> pages >> resident_pages;
  return resident_pages * page_bytes();
}

std::size_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    std::size_t kibibytes = 0;
    status >> kibibytes;
    return kibibytes * 1024;
  }
  // Sandboxed kernels omit the line.
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

}  // namespace lockstep
