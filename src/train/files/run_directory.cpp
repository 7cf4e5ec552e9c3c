#include "lockstep/train/files/run_directory.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/observe/summary.hpp"

namespace lockstep::train {

void RunDirectory::require_unused() const {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(root_, ignored))
    require(entry.path().extension() != ".h5",
            fmt::format("{} holds {}, which is not a file of a run: choose another --out",
                        root_.string(), entry.path().filename().string()));
  for (const auto& path : {config(), metrics(), summary(), checkpoints()})
    require(!std::filesystem::exists(path, ignored),
            fmt::format("{} already holds a run, and nothing is written over: continue it with "
                        "--resume auto, or choose another --out",
                        root_.string()));
}

void RunDirectory::require_unfinished() const {
  std::error_code ignored;
  if (!std::filesystem::exists(summary(), ignored)) return;
  require(!observe::read_summary(summary()).finished(),
          fmt::format("{} holds a finished run without a valid checkpoint: nothing is written "
                      "over; choose another --out",
                      root_.string()));
}

namespace {

/// True for the one process that creates it, of all that try at once; false when it exists.
bool make_first(const std::filesystem::path& directory) {
  std::error_code error;
  const bool made = std::filesystem::create_directory(directory, error);
  if (error) fail_by_system(directory.string() + ": cannot be made", error.value());
  return made;
}

}  // namespace

void require_here(const RunDirectory& run, const std::string& path, const std::string& key) {
  std::error_code none;
  if (path.empty() || path.starts_with('/') || path.find_first_of("*?[") != std::string::npos ||
      std::filesystem::exists(path, none))
    return;
  std::string started;
  if (std::filesystem::exists(run.metrics(), none))
    observe::read_records(run.metrics(), [&](const observe::Record& record) {
      const auto* start = std::get_if<observe::StartRecord>(&record);
      if (start != nullptr) started = start->directory;
      return true;
    });
  throw InputError(fmt::format(
      "{}: is not there, seen from this folder; the run was started in {}: go there, or name the "
      "data by {}",
      path, started.empty() ? "another one" : started, key));
}

std::string choose_checkpoint(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return path;
  std::filesystem::path folder = RunDirectory(path).checkpoints();
  if (!std::filesystem::is_directory(folder)) folder = path;
  const model::CheckpointDirectory found(folder, 1);
  if (std::filesystem::exists(found.best())) return found.best().string();
  const auto newest = found.newest_valid();
  require(newest.has_value(), fmt::format("{}: holds no checkpoint", path));
  return newest->string();
}

std::string claim(const std::string& pattern) {
  const std::size_t at = pattern.find("{n}");
  if (at == std::string::npos) {
    const RunDirectory run(pattern);
    make_directories(run.root());
    require(make_first(run.checkpoints()),
            fmt::format("{}: another run has just begun here; choose another --out", pattern));
    return pattern;
  }
  for (std::size_t n = 1;; ++n) {
    std::string path = pattern.substr(0, at) + std::to_string(n) + pattern.substr(at + 3);
    const std::filesystem::path parent = std::filesystem::path(path).parent_path();
    if (!parent.empty()) make_directories(parent);
    if (std::error_code none; std::filesystem::exists(path, none) || !make_first(path)) continue;
    make_directories(RunDirectory(path).checkpoints());
    return path;
  }
}

namespace {

// Another process that asks who has the lock has it itself for a moment.
constexpr double patience_s = 1;

/// False, with errno, when the file cannot be locked.
bool lock_within(int file, double seconds) {
  for (const double until_s = now_s() + seconds; ::flock(file, LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK || now_s() > until_s) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace

RunLock::RunLock(const RunDirectory& run, bool took_over) {
  const std::filesystem::path path = run.root() / ".lock";
  // For an exclusive lock NFS wants a file that is open for writing, for a shared one, for reading.
  file_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file_) fail_by_system(path.string() + " cannot be opened", errno);
  if (lock_within(file_.get(), patience_s)) {
    std::error_code none;  // our own time: a file server's clock may be another one
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now(), none);
    return;
  }
  const int reason = errno;
  require(reason != EWOULDBLOCK || took_over,
          fmt::format("{}: another run is writing here: wait for its end, or choose another --out",
                      run.root().string()));
  log::warn(fmt::format("{} cannot be locked ({}): make sure that no other run writes here",
                        path.string(), std::strerror(reason)));
}

RunLock::State RunLock::look(const RunDirectory& run) {
  const std::filesystem::path path = run.root() / ".lock";
  const auto not_known = [&] {
    return State{{}, fmt::format("{}: {}", path.string(), std::strerror(errno))};
  };
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) return errno == ENOENT ? State{} : not_known();
  if (::flock(file.get(), LOCK_SH | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return not_known();
  return {static_cast<std::uint64_t>(stamp_of(file.get(), path).modified_ns) / 1'000'000, ""};
}

}  // namespace lockstep::train
