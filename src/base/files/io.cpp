#include "lockstep/base/files/io.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/base/text/words.hpp"

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

std::string field_of(const std::filesystem::path& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (const std::size_t colon = line.find(':');
        colon != line.npos && trimmed(std::string_view(line).substr(0, colon)) == name)
      return std::string(trimmed(std::string_view(line).substr(colon + 1)));
  return "";
}

std::string boot_id() { return first_line("/proc/sys/kernel/random/boot_id"); }
namespace {

constexpr rlim_t most_raised = 65536;
// A checkpoint takes about five descriptors at a time, a listing of /proc or of a folder two.
constexpr std::size_t most_spare = 16, most_last = 32;

std::size_t limit() {
  rlimit limits{};
  if (::getrlimit(RLIMIT_NOFILE, &limits) != 0) return 1024;
  return static_cast<std::size_t>(std::min<rlim_t>(limits.rlim_cur, 1 << 30));
}

struct Reserve {
  std::mutex mutex;
  std::size_t size = 0, users = 0;
  std::vector<Descriptor> held;

  void fill() {
    while (held.size() < size) {
      Descriptor one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!one) return;
      held.push_back(std::move(one));
    }
  }
};

Reserve& reserve() {
  static Reserve the_reserve;
  return the_reserve;
}

/// The port of this end of a connection that another process began; 0 for anything else. The other
/// end's port tells: a port that one connects from is hardly one that others connect to.
std::uint16_t port_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  size = sizeof address;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  return 0;
}

}  // namespace

void prepare_descriptors() {
  rlimit limits{};
  if (::getrlimit(RLIMIT_NOFILE, &limits) == 0 && limits.rlim_cur < most_raised) {
    limits.rlim_cur = std::min(limits.rlim_max, most_raised);
    ::setrlimit(RLIMIT_NOFILE, &limits);
  }
  const std::scoped_lock lock(reserve().mutex);
  reserve().size = std::min(most_spare, limit() / 8);
  reserve().fill();
}

SpareDescriptors::SpareDescriptors() {
  const std::scoped_lock lock(reserve().mutex);
  if (reserve().users++ == 0) reserve().held.clear();
}

SpareDescriptors::~SpareDescriptors() {
  const std::scoped_lock lock(reserve().mutex);
  if (--reserve().users == 0) reserve().fill();
}

bool among_the_last(int descriptor) {
  const std::size_t all = limit();
  return static_cast<std::size_t>(descriptor) + std::min(most_last, all / 8) >= all;
}

std::string describe_lack_of_descriptors(std::uint16_t own_port) {
  const Descriptor lowest(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (lowest && !among_the_last(lowest.get())) return "";
  const SpareDescriptors spare;
  std::size_t open = 0;
  std::map<std::uint16_t, std::size_t> connections;
  for (int descriptor = 0; descriptor < static_cast<int>(limit()); ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0) continue;
    ++open;
    if (const std::uint16_t port = port_of(descriptor); port != 0) ++connections[port];
  }
  std::string text = fmt::format("{} of {} file descriptors are open", open, limit());
  const auto most = std::max_element(
      connections.begin(), connections.end(),
      [](const auto& left, const auto& right) { return left.second < right.second; });
  if (most == connections.end()) return text;
  return text +
         fmt::format(", {} of them connections to port {}, which is {}", most->second, most->first,
                     most->first == own_port ? "the heartbeat's" : "not lockstep's (Open MPI's?)");
}

}  // namespace lockstep
