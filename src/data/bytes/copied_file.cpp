#include "data/bytes/file_bytes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/process.hpp"

namespace lockstep::data {
namespace {

// A piece's state: absent, there, or the process that copies it: its number and when it began,
// because numbers are given again.
constexpr std::uint64_t piece_absent = 0, piece_there = ~std::uint64_t{0};
constexpr double look_s = 0.1;  // how often to ask when that process began
constexpr std::size_t table_header_bytes = 4096;

[[noreturn]] void cannot(const std::filesystem::path& path, const char* what) {
  throw InputError(
      fmt::format("data.stage: {}: cannot be {}: {}", path.string(), what, std::strerror(errno)));
}

/// When it began, as claims have it; 0: not known.
std::uint32_t start_of(pid_t process) {
  return static_cast<std::uint32_t>(start_of_process(process));
}

std::uint64_t claim_of(pid_t process) {
  return std::uint64_t{static_cast<std::uint32_t>(process)} << 32 | start_of(process);
}

/// A process that is gone will not finish its piece. `thorough`: also if another one has its
/// number.
bool gone(std::uint64_t claim, bool thorough) {
  const auto process = static_cast<pid_t>(claim >> 32);
  if (::kill(process, 0) != 0 && errno == ESRCH) return true;
  const std::uint32_t start = thorough ? start_of(process) : 0;
  return start != 0 && start != static_cast<std::uint32_t>(claim);
}

/// Identifies what a copy was made of: this file as it is now, and since this machine was started
/// (after a crash the table may have reached the disk before the bytes).
std::string identity(const std::filesystem::path& original, const struct stat& status) {
  std::error_code error;
  const auto real = std::filesystem::canonical(original, error);
  return fmt::format("{} {} {}.{:09} {} {} 2", (error ? original : real).string(), status.st_size,
                     status.st_mtim.tv_sec, status.st_mtim.tv_nsec, CopiedFile::piece_bytes,
                     boot_id());
}

/// Two sums, so that two files do not share one name.
std::string name_of(const std::string& text) {
  return fmt::format("{:08x}{:08x}", crc32c(text.data(), text.size()),
                     crc32c(text.data(), text.size(), 0x5EED));
}

/// A copy that ends early is also an error.
bool read_whole(int file, std::uint8_t* to, std::size_t bytes, std::uint64_t at) {
  if (read_all_at(file, to, bytes, at) == bytes) return true;
  if (errno == 0) errno = EIO;
  return false;
}

/// The table appears whole, and the first process to make it wins. It is written, not only
/// extended, so that its pages exist when it is mapped.
void make_table(const std::filesystem::path& path, const std::string& text, std::size_t bytes) {
  std::string table = text.substr(0, table_header_bytes - 1);
  table.resize(bytes);
  if (!std::filesystem::exists(path)) publish_text(path, table);
}

}  // namespace

CopiedFile::CopiedFile(const std::filesystem::path& original, int descriptor,
                       const std::filesystem::path& directory, double patience_s)
    : original_(descriptor), patience_s_(patience_s), mine_(claim_of(::getpid())) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) cannot(original, "read");
  size_ = static_cast<std::uint64_t>(status.st_size);
  const std::string text = identity(original, status);
  const auto folder = directory / fmt::format("lockstep-stage-{}", ::getuid());
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) cannot(folder, "made");
  struct stat owner {};
  if (::lstat(folder.c_str(), &owner) != 0 || !S_ISDIR(owner.st_mode) ||
      owner.st_uid != ::getuid()) {
    throw InputError(
        fmt::format("data.stage: {}: is not a folder of this user's", folder.string()));
  }
  path_ = folder / (name_of(text) + "-" + original.filename().string());
  table_bytes_ = table_header_bytes + pieces() * sizeof(std::uint64_t);
  make_table(table(), text, table_bytes_);
  const Descriptor file(::open(table().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!file || ::fstat(file.get(), &owner) != 0) cannot(table(), "opened");
  std::string found(table_header_bytes, '\0');
  const bool same = static_cast<std::size_t>(owner.st_size) == table_bytes_ &&
                    read_whole(file.get(), reinterpret_cast<std::uint8_t*>(found.data()),
                               table_header_bytes, 0) &&
                    std::strncmp(text.c_str(), found.c_str(), table_header_bytes - 1) == 0;
  if (!same)
    throw InputError(
        fmt::format("data.stage: {}: was cut off, or belongs to another file; remove it and {}",
                    table().string(), path_.string()));
  map_table(file.get());
  open_copy();
}

CopiedFile::~CopiedFile() {
  guard_.reset();
  if (table_ != nullptr) ::munmap(table_, table_bytes_);
}

void CopiedFile::map_table(int descriptor) {
  void* mapped = ::mmap(nullptr, table_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) cannot(table(), "mapped");
  table_ = mapped;
  guard_.emplace(table_, table_bytes_, true);
}

/// Only after the copy had its size was a piece there. Zeros in place of what is gone would pass
/// for pixels where rows have no checksums.
void CopiedFile::open_copy() {
  copy_ = Descriptor(::open(path_.c_str(), O_CREAT | O_RDWR | O_NONBLOCK | O_CLOEXEC, 0600));
  const auto is_short = [&] { return copy_ && stamp_of(copy_.get(), path_).bytes < size_; };
  if (is_short()) {
    bool any = false;
    for (std::uint64_t piece = 0; piece < pieces() && !any; ++piece) any = is_there(piece);
    require(!any || !is_short(), fmt::format("data.stage: {}: was cut off; remove it and {}",
                                             path_.string(), table().string()));
  }
  if (!copy_ || ::ftruncate(copy_.get(), static_cast<off_t>(size_)) != 0) cannot(path_, "made");
}

std::atomic_ref<std::uint64_t> CopiedFile::state(std::uint64_t piece) const {
  auto* states =
      reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(table_) + table_header_bytes);
  return std::atomic_ref<std::uint64_t>(states[piece]);
}

bool CopiedFile::is_there(std::uint64_t piece) const {
  return state(piece).load(std::memory_order_acquire) == piece_there && !guard_->failed();
}

/// Ask it after the table: what was read of one that has been cut off means nothing.
bool CopiedFile::given_up() {
  if (guard_->failed() && error_.exchange(EIO) == 0)
    log::warn(fmt::format("data.stage: {}: was cut off; {} is read in place", table().string(),
                          path_.filename().string()));
  return error_ != 0;
}

std::string CopiedFile::problem() const {
  if (guard_->failed()) return table().string() + ": was cut off";
  const int why = error_.load();
  return why == 0 ? "" : fmt::format("{}: {}", path_.string(), std::strerror(why));
}

bool CopiedFile::copy_claimed(std::uint64_t piece) {
  thread_local std::vector<std::uint8_t> buffer(piece_bytes);
  const std::uint64_t at = piece * piece_bytes;
  const std::size_t bytes = std::min(piece_bytes, size_ - at);
  const bool done = read_whole(original_, buffer.data(), bytes, at) &&
                    write_all_at(copy_.get(), buffer.data(), bytes, at) == bytes;
  if (!done) error_ = errno;
  state(piece).store(done ? piece_there : piece_absent, std::memory_order_release);
  return done;
}

bool CopiedFile::copy(std::uint64_t piece) {
  std::uint64_t found = piece_absent;
  const bool mine =
      !given_up() && state(piece).compare_exchange_strong(found, mine_, std::memory_order_acq_rel);
  if (given_up()) return false;
  return !mine || copy_claimed(piece);
}

bool CopiedFile::ensure(std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t piece = begin / piece_bytes; piece * piece_bytes < end; ++piece)
    if (!ensure_piece(piece)) return false;
  return true;
}

bool CopiedFile::ensure_piece(std::uint64_t piece) {
  double waiting_since = 0, looked_s = 0;
  for (;;) {
    std::uint64_t found = state(piece).load(std::memory_order_acquire);
    if (found == piece_there) return true;
    if (given_up()) return false;
    const double now = now_s();
    if (waiting_since == 0) waiting_since = looked_s = now;
    const bool look = now - looked_s > look_s;
    if (look) looked_s = now;
    const bool free = found == piece_absent || gone(found, look);
    if (free && state(piece).compare_exchange_strong(found, mine_, std::memory_order_acq_rel))
      return copy_claimed(piece);
    // One wait is enough: else a process that is stopped would cost as much for each row.
    if (found == stuck_claim_) return false;
    if (now - waiting_since > patience_s_) {
      stuck_claim_ = found;
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace lockstep::data
