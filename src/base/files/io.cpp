#include "lockstep/base/files/io.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep {
namespace {

/// Repeats `call(done)`, which handles what it can of the bytes after the first `done`.
template <class Call>
std::size_t all(std::size_t bytes, Call call) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t more = call(done);
    if (more < 0 && errno == EINTR) continue;
    if (more == 0) errno = 0;
    if (more <= 0) break;
    done += static_cast<std::size_t>(more);
  }
  return done;
}

}  // namespace

std::size_t write_all(int descriptor, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  return all(bytes, [&](std::size_t done) { return ::write(descriptor, at + done, bytes - done); });
}

std::size_t write_all_at(int descriptor, const void* from, std::size_t bytes,
                         std::uint64_t offset) {
  const auto* at = static_cast<const char*>(from);
  return all(bytes, [&](std::size_t done) {
    return ::pwrite(descriptor, at + done, bytes - done, static_cast<off_t>(offset + done));
  });
}

std::size_t read_all(int descriptor, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  return all(bytes, [&](std::size_t done) { return ::read(descriptor, at + done, bytes - done); });
}

std::size_t read_all_at(int descriptor, void* to, std::size_t bytes, std::uint64_t offset) {
  auto* at = static_cast<char*>(to);
  return all(bytes, [&](std::size_t done) {
    return ::pread(descriptor, at + done, bytes - done, static_cast<off_t>(offset + done));
  });
}

bool is_readable(int descriptor) {
  pollfd events = {.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&events, 1, 0) > 0 && (events.revents & POLLIN) != 0;
}

bool is_machine_fault(int error_number) {
  return error_number == ENOSPC || error_number == EDQUOT || error_number == EIO ||
         error_number == ENOMEM || error_number == EFBIG;
}

void fail_by_system(std::string_view what, int error_number) {
  const std::string text = fmt::format("{}: {}", what, std::strerror(error_number));
  if (is_machine_fault(error_number)) throw Error(text, ending_in(text));
  throw InputError(text, ending_in(text));
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? line : "";
}

std::string boot_id() { return first_line("/proc/sys/kernel/random/boot_id"); }

}  // namespace lockstep
