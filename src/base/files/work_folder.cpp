#include "lockstep/base/files/work_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <set>
#include <sstream>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/text/numbers.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Between two looks at a claim; what is longer was not spent looking.
constexpr double longest_gap_s = 1.5;
constexpr std::chrono::milliseconds nap{200};

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
  const pid_t pid = ::getpid();
  return fmt::format("host {}\npid {}\nbegan {}\nspace {}\n", host_name(), pid,
                     start_of_process(pid), process_space());
}

enum class Holder { ended, runs_here, unknown };

/// It has certainly ended if its number has no process, or a later one, on this machine.
Holder holder_of(const std::string& claim) {
  std::istringstream words(claim);
  std::string space;
  std::uint64_t start = 0;
  pid_t pid = 0;
  for (std::string key, value; words >> key >> value;) {
    if (key == "pid") pid = whole_number<pid_t>(value).value_or(0);
    if (key == "began") start = whole_number<std::uint64_t>(value).value_or(0);
    if (key == "space") space = value;
  }
  if (pid <= 0 || start == 0 || space == "unknown" || space != process_space())
    return Holder::unknown;
  if (::kill(pid, 0) != 0 && errno == ESRCH) return Holder::ended;
  const std::uint64_t now = start_of_process(pid);
  return now == 0 ? Holder::unknown : now == start ? Holder::runs_here : Holder::ended;
}

/// Anything may lie in the folder: a pipe must not keep this process.
Descriptor open_claim(const fs::path& path) {
  return Descriptor(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

std::string read_claim(const Descriptor& claim) {
  std::string text(4096, '\0');
  text.resize(read_all(claim.get(), text.data(), text.size()));
  return text;
}

/// Empty: its holder has given it up meanwhile. On a network file system an open file that others
/// remove has no attributes any more, and is no error (ESTALE).
std::optional<FileStamp> stamp_of_claim(const Descriptor& claim, const fs::path& path) {
  try {
    return claim ? stamp_of(claim.get(), path) : stamp_of(path);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

Holder holder_in(const Descriptor& claim) { return holder_of(read_claim(claim)); }

}  // namespace

WorkFolder::WorkFolder(const WorkFolderSpec& spec) : spec_(spec), holder_(describe_self()) {
  make_directories(spec_.claims);
  heart_ = std::thread([this] { beat(); });
}

WorkFolder::~WorkFolder() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ending_.notify_all();
  heart_.join();
  while (!held_.empty()) release(held_.begin()->first);
}

void WorkFolder::beat() {
  std::unique_lock lock(mutex_);
  const auto pause = std::chrono::duration<double>(spec_.beat_s);
  while (!ending_.wait_for(lock, pause, [this] { return ended_; }))
    for (const auto& [piece, generation] : held_)
      ::utimensat(AT_FDCWD, file_of(piece, generation).c_str(), nullptr, 0);
}

fs::path WorkFolder::file_of(std::size_t piece, std::uint64_t generation) const {
  return spec_.claims / fmt::format("{}.{}", piece, generation);
}

WorkFolder::Generations WorkFolder::newest_claims() const {
  Generations newest;
  std::error_code gone;
  for (fs::directory_iterator at(spec_.claims, gone), end; !gone && at != end; at.increment(gone)) {
    const std::string file = at->path().filename().string();
    const std::size_t dot = std::min(file.find('.'), file.size() - 1);
    const auto piece = whole_number<std::uint64_t>(file.substr(0, dot));
    const auto generation = whole_number<std::uint64_t>(file.substr(dot + 1));
    if (!piece || !generation || file_of(*piece, *generation) != at->path()) continue;
    std::uint64_t& one = newest[*piece];
    one = std::max(one, *generation);
  }
  return newest;
}

std::optional<std::size_t> WorkFolder::take_any(const std::vector<std::size_t>& pieces) {
  const Generations newest = newest_claims();
  for (const std::size_t piece : pieces)
    if (!newest.contains(piece) && make(piece, 0)) return piece;
  holders_live_ = true;
  for (const std::size_t piece : pieces) {
    const auto claim = newest.find(piece);
    const bool shows = claim != newest.end() && shows_life(piece, claim->second);
    holders_live_ = holders_live_ && shows && beats(piece, claim->second);
    if (claim == newest.end() || shows) continue;
    if (make(piece, claim->second + 1)) return piece;
  }
  return std::nullopt;
}

bool WorkFolder::beats(std::size_t piece, std::uint64_t generation) const {
  const auto seen = seen_.find({piece, generation});
  return seen != seen_.end() && seen->second.beats && seen->second.unchanged_s < spec_.stale_s / 2;
}

bool WorkFolder::make(std::size_t piece, std::uint64_t generation) {
  const fs::path path = file_of(piece, generation);
  const Descriptor claim(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  // The folder is removed once all is done.
  if (!claim && (errno == EEXIST || errno == ENOENT)) return false;
  if (!claim || write_all(claim.get(), holder_.data(), holder_.size()) != holder_.size()) {
    const int reason = errno;
    if (claim) ::unlink(path.c_str());
    fail_by_system("cannot write " + path.string(), reason);
  }
  const std::lock_guard lock(mutex_);
  held_[piece] = generation;
  return true;
}

bool WorkFolder::shows_life(std::size_t piece, std::uint64_t generation) {
  {
    const std::lock_guard lock(mutex_);
    const auto held = held_.find(piece);
    if (held != held_.end() && held->second == generation) return true;
  }
  const fs::path path = file_of(piece, generation);
  // A network file system gives fresh attributes to whom opens the file.
  const Descriptor claim = open_claim(path);
  // It was just given up: the next look finds the piece free.
  if (std::error_code none; !claim && !fs::exists(path, none)) return true;
  if (claim && holder_in(claim) == Holder::ended) return false;
  const std::optional<FileStamp> stamp = stamp_of_claim(claim, path);
  if (!stamp) return true;
  const double now = now_s();
  const auto [at, first] = seen_.try_emplace({piece, generation}, Seen{*stamp, 0, now});
  Seen& seen = at->second;
  seen.beats = seen.beats || seen.stamp != *stamp;
  // While this process is suspended, so may be the others: such time does not count.
  seen.unchanged_s =
      seen.stamp == *stamp ? seen.unchanged_s + std::min(now - seen.looked_s, longest_gap_s) : 0;
  seen.stamp = *stamp;
  seen.looked_s = now;
  return first || seen.unchanged_s < spec_.stale_s;
}

void WorkFolder::release(std::size_t piece) {
  const std::lock_guard lock(mutex_);
  const auto held = held_.find(piece);
  check(held != held_.end(), "a piece that is held");
  ::unlink(file_of(piece, held->second).c_str());
  held_.erase(held);
}

void WorkFolder::do_all(const std::function<std::vector<std::size_t>()>& left,
                        const std::function<void(std::size_t)>& work) {
  for (std::vector<std::size_t> now = left(); !now.empty(); now = left()) {
    const auto piece = take_any(now);
    if (!piece) {
      std::this_thread::sleep_for(nap);
      continue;
    }
    now = left();  // its holder may have done it just now
    if (std::find(now.begin(), now.end(), *piece) != now.end()) work(*piece);
    release(*piece);
  }
}

bool WorkFolder::hold(std::size_t piece) {
  for (bool told = false; !take_any({piece}); std::this_thread::sleep_for(nap)) {
    const Generations newest = newest_claims();
    const auto claim = newest.find(piece);
    if (claim == newest.end()) {
      if (!fs::exists(spec_.claims)) return false;  // its holder has just removed the folder
      continue;
    }
    const fs::path path = file_of(piece, claim->second);
    const auto seen = seen_.find(*claim);
    if (seen != seen_.end() && seen->second.beats) return false;
    if (holder_in(open_claim(path)) == Holder::runs_here) return false;
    if (!std::exchange(told, true))
      log::info(
          fmt::format("{}: another process has this, or has left it: waiting {:.0f} s for a "
                      "sign of life",
                      path.string(), spec_.stale_s));
  }
  return true;
}

bool WorkFolder::is_overtaken(std::size_t piece) const {
  const std::lock_guard lock(mutex_);
  return fs::exists(file_of(piece, held_.at(piece) + 1));
}

std::size_t WorkFolder::workers() const {
  std::set<std::string> holders;
  for (const auto& [piece, generation] : newest_claims()) {
    const std::string text = read_claim(open_claim(file_of(piece, generation)));
    if (!text.empty() && holder_of(text) != Holder::ended) holders.insert(text);
  }
  return holders.size();
}

}  // namespace lockstep
