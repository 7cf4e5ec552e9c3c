#include "data/bytes/file_bytes.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "lockstep/base/error.hpp"
#include "lockstep/base/room.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t most_ranges = 4096;

struct Range {
  std::atomic<std::uintptr_t> begin{0}, end{0};  // 0: free
  std::atomic<bool> failed{false}, writable{false};
};
std::array<Range, most_ranges> ranges;
std::atomic<std::size_t> ranges_used{0};  // all later ones are free
std::mutex ranges_mutex;                  // for taking and giving back; the handler does not lock
struct sigaction action_before;
std::size_t system_page_bytes = 0;  // the handler may not ask

// Uses only what a signal handler may use: atomics, and mmap, a system call that takes no lock of
// this process.
void on_fault(int, siginfo_t* info, void*) {
  const int kept_errno = errno;
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const std::size_t used = ranges_used.load();
  for (std::size_t i = 0; i < used; ++i) {
    const std::uintptr_t end = ranges[i].end.load();
    if (at < ranges[i].begin.load() || at >= end) continue;
    const std::size_t within = at % system_page_bytes;
    char* const page = static_cast<char*>(info->si_addr) - within;
    // Zeros up to the end: when a page is gone, most of those after it are gone, too.
    if (::mmap(page, end - at + within, ranges[i].writable ? PROT_READ | PROT_WRITE : PROT_READ,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
      break;
    ranges[i].failed.store(true);
    errno = kept_errno;
    return;
  }
  ::sigaction(SIGBUS, &action_before, nullptr);  // the same access now fails as it did before
}

void watch() {
  system_page_bytes = page_bytes();
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &action_before);
}

}  // namespace

FaultGuard::FaultGuard(void* begin, std::size_t bytes, bool writable) : slot_(0) {
  static std::once_flag watched;
  std::call_once(watched, watch);
  const std::lock_guard lock(ranges_mutex);
  while (slot_ < most_ranges && ranges[slot_].end.load() != 0) ++slot_;
  if (slot_ == most_ranges) return;
  Range& range = ranges[slot_];
  range.failed = false;
  range.writable = writable;
  range.begin = reinterpret_cast<std::uintptr_t>(begin);
  range.end = reinterpret_cast<std::uintptr_t>(begin) + bytes;
  if (slot_ >= ranges_used) ranges_used = slot_ + 1;
}

FaultGuard::~FaultGuard() {
  if (slot_ < most_ranges) ranges[slot_].end = 0;
}

bool FaultGuard::failed() const { return slot_ < most_ranges && ranges[slot_].failed; }

Mapping::Mapping(int descriptor, const std::string& name) : descriptor_(descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && status.st_size > 0) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
  }
  if (data_ == nullptr || data_ == MAP_FAILED)
    throw InputError(fmt::format("{}: cannot be mapped: {}; use data.read = pread instead", name,
                                 std::strerror(errno)));
  guard_.emplace(data_, size_);
}

Mapping::~Mapping() {
  guard_.reset();
  ::munmap(data_, size_);
}

const std::uint8_t* Mapping::bytes(std::uint64_t begin, std::uint64_t end) const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < end ||
      size_ < end)
    return nullptr;
  return static_cast<const std::uint8_t*>(data_) + begin;
}

}  // namespace lockstep::data
