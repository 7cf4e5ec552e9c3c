#include "serve/swarm/claims.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <set>
#include <sstream>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/text/numbers.hpp"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;
using Descriptor = Owned<int, ::close, -1>;

/// Between two looks at a claim; what is longer was not spent looking.
constexpr double longest_gap_s = 1.5;

/// When the process began, in the kernel's ticks; empty without one. A number is given to a new
/// process after a while.
std::string began(long pid) {
  const std::string status = first_line(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_ends = status.rfind(')');  // a name may hold anything
  if (name_ends == status.npos) return {};
  std::istringstream words(status.substr(name_ends + 1));
  std::string word;
  for (int field = 3; field <= 22; ++field) words >> word;
  return word;
}

/// Where process numbers have one meaning: a boot of a machine, and a container in it.
std::string process_space() {
  std::array<char, 64> name{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", name.data(), name.size());
  const std::string boot = boot_id();
  if (length <= 0 || boot.empty()) return "unknown";
  return fmt::format("{}/{}", boot,
                     std::string_view(name.data(), static_cast<std::size_t>(length)));
}

std::string describe_self() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const long pid = ::getpid();
  return fmt::format("host {}\npid {}\nbegan {}\nspace {}\n", host.data(), pid, began(pid),
                     process_space());
}

/// The holder has certainly ended: its number has no process, or a later one, on this machine.
bool has_ended(const std::string& claim) {
  std::istringstream words(claim);
  std::string start, space;
  long pid = 0;
  for (std::string key, value; words >> key >> value;) {
    if (key == "pid") pid = whole_number<long>(value).value_or(0);
    if (key == "began") start = value;
    if (key == "space") space = value;
  }
  if (pid <= 0 || start.empty() || space == "unknown" || space != process_space()) return false;
  const std::string now = began(pid);
  return now.empty() ? ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH : now != start;
}

/// "17.2": the second claim on piece 17 after its first.
struct ClaimName {
  std::size_t piece = 0;
  std::uint64_t generation = 0;
};

/// Anything may lie in the folder: a pipe must not keep this process.
Descriptor open_claim(const fs::path& path) {
  return Descriptor(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

std::string read_claim(const Descriptor& claim) {
  std::string text(4096, '\0');
  text.resize(read_all(claim.get(), text.data(), text.size()));
  return text;
}

std::optional<ClaimName> read_name(const std::string& file) {
  const std::size_t dot = file.find('.');
  if (dot == file.npos) return std::nullopt;
  const auto piece = whole_number<std::uint64_t>(file.substr(0, dot));
  const auto generation = whole_number<std::uint64_t>(file.substr(dot + 1));
  if (!piece || !generation) return std::nullopt;
  return ClaimName{*piece, *generation};
}

}  // namespace

Claims::Claims(const ClaimSpec& spec) : spec_(spec), holder_(describe_self()) {
  make_directories(spec_.folder);
  heart_ = std::thread([this] { beat(); });
}

Claims::~Claims() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ending_.notify_all();
  heart_.join();
  while (!held_.empty()) release(held_.begin()->first);
}

void Claims::beat() {
  std::unique_lock lock(mutex_);
  const auto pause = std::chrono::duration<double>(spec_.beat_s);
  while (!ending_.wait_for(lock, pause, [this] { return ended_; }))
    for (const auto& [piece, file] : held_)
      ::utimensat(AT_FDCWD, (spec_.folder / file).c_str(), nullptr, 0);
}

std::map<std::size_t, Claims::Newest> Claims::newest_claims() const {
  std::map<std::size_t, Newest> newest;
  std::error_code gone;
  for (fs::directory_iterator at(spec_.folder, gone), end; !gone && at != end; at.increment(gone)) {
    const std::string file = at->path().filename().string();
    const auto name = read_name(file);
    if (!name) continue;
    Newest& one = newest[name->piece];
    if (one.file.empty() || name->generation > one.generation) one = {name->generation, file};
  }
  return newest;
}

std::optional<std::size_t> Claims::take_any(const std::vector<std::size_t>& pieces) {
  const std::map<std::size_t, Newest> newest = newest_claims();
  for (const std::size_t piece : pieces)
    if (!newest.contains(piece) && make(piece, 0)) return piece;
  for (const std::size_t piece : pieces) {
    const auto claim = newest.find(piece);
    if (claim == newest.end() || shows_life(claim->second.file)) continue;
    if (make(piece, claim->second.generation + 1)) return piece;
  }
  return std::nullopt;
}

bool Claims::make(std::size_t piece, std::uint64_t generation) {
  const std::string file = fmt::format("{}.{}", piece, generation);
  const fs::path path = spec_.folder / file;
  const Descriptor claim(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  // The folder is removed once all is done.
  if (!claim && (errno == EEXIST || errno == ENOENT)) return false;
  if (!claim || write_all(claim.get(), holder_.data(), holder_.size()) != holder_.size()) {
    const int reason = errno;
    if (claim) ::unlink(path.c_str());
    fail_by_system("cannot write " + path.string(), reason);
  }
  const std::lock_guard lock(mutex_);
  held_[piece] = file;
  return true;
}

bool Claims::shows_life(const std::string& file) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [piece, own] : held_)
      if (own == file) return true;
  }
  const fs::path path = spec_.folder / file;
  // A network file system gives fresh attributes to whom opens the file.
  const Descriptor claim = open_claim(path);
  // It was just given up: the next look finds the piece free.
  if (std::error_code none; !claim && !fs::exists(path, none)) return true;
  if (claim && has_ended(read_claim(claim))) return false;
  const FileStamp stamp = claim ? stamp_of(claim.get(), path) : stamp_of(path);
  const double now = now_s();
  const auto [at, first] = seen_.try_emplace(file, Seen{stamp, 0, now});
  Seen& seen = at->second;
  // While this process is suspended, so may be the others: such time does not count.
  seen.unchanged_s =
      seen.stamp == stamp ? seen.unchanged_s + std::min(now - seen.looked_s, longest_gap_s) : 0;
  seen.stamp = stamp;
  seen.looked_s = now;
  return first || seen.unchanged_s < spec_.stale_s;
}

void Claims::release(std::size_t piece) {
  const std::lock_guard lock(mutex_);
  const auto held = held_.find(piece);
  check(held != held_.end(), "a piece that is held");
  ::unlink((spec_.folder / held->second).c_str());
  held_.erase(held);
}

std::size_t Claims::workers() const {
  std::set<std::string> holders;
  for (const auto& [piece, claim] : newest_claims()) {
    const Descriptor file = open_claim(spec_.folder / claim.file);
    if (!file) continue;
    const std::string text = read_claim(file);
    if (!text.empty() && !has_ended(text)) holders.insert(text);
  }
  return holders.size();
}

}  // namespace lockstep::serve
