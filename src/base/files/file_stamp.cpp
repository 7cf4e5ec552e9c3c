#include "lockstep/base/files/files.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.hpp"

namespace lockstep {
namespace {

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileStamp stamp_in(const struct stat& status) {
  return {.bytes = static_cast<std::uint64_t>(status.st_size),
          .inode = static_cast<std::uint64_t>(status.st_ino),
          .modified_ns = nanoseconds(status.st_mtim),
          .touched_ns = nanoseconds(status.st_ctim)};
}

[[noreturn]] void cannot_ask(const std::filesystem::path& path) {
  throw InputError(fmt::format("{}: {}", path.string(), std::strerror(errno)));
}

}  // namespace

FileStamp stamp_of(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) cannot_ask(path);
  return stamp_in(status);
}

FileStamp stamp_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) cannot_ask(path);
  return stamp_in(status);
}

void require_same(const FileStamp& now, const FileStamp& then, const std::filesystem::path& path,
                  const std::string& rows, const std::string& file) {
  if (now == then) return;
  throw InputError(fmt::format("{}: {} cannot be read: {} has {} since it was opened",
                               path.string(), rows, file,
                               now.bytes < then.bytes ? "become shorter" : "been changed"));
}

}  // namespace lockstep
