#include "lockstep/observe/tensorboard/tensorboard_log.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/owned.hpp"
#include "observe/tensorboard/events.hpp"

namespace lockstep::observe {
namespace {

constexpr std::size_t most_at_once_bytes = 64 * 1024;
constexpr std::size_t most_in_memory_bytes = std::size_t{16} << 20;
constexpr std::chrono::seconds most_delay{1};
constexpr std::string_view name_begins = "events.out.tfevents.";

/// Those of earlier starts.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(name_begins)) files.push_back(entry.path());
  return files;
}

/// That a file's name has; 0 where it has none.
std::uint64_t time_in_name(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  std::uint64_t time_s = 0;
  std::from_chars(name.data() + name_begins.size(), name.data() + name.size(), time_s);
  return time_s;
}

}  // namespace

/// Events pass from `buffer` to the thread, which alone touches the file and holds no lock
/// meanwhile.
struct TensorBoardLog::Impl {
  explicit Impl(Spec what) : spec(std::move(what)), thread([this] { run(); }) {}

  ~Impl() {
    {
      const std::scoped_lock lock(mutex);
      ending = true;
    }
    changed.notify_all();
    thread.join();
  }

  void run() {
    try {
      if (!begin() || !write_until_end()) {
        const std::scoped_lock lock(mutex);
        end_early("");
      }
    } catch (const std::exception& error) {
      const std::scoped_lock lock(mutex);
      end_early(error.what());
    }
  }

  /// False when a newer start has begun, which the run itself finds and says.
  bool may_write() const {
    try {
      if (spec.require_writer) spec.require_writer();
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  /// REQUIRES: the lock.
  void end_early(std::string_view why) {
    if (!std::exchange(ended, true) && !why.empty())
      log::warn(fmt::format("TensorBoard's curves end here, and training continues: {}", why));
    buffer.clear();
    changed.notify_all();
  }

  /// Makes the file, after those of earlier starts in the order of names, which readers follow.
  /// False where it must not.
  bool begin() {
    make_directories(spec.folder);
    const std::vector<std::filesystem::path> earlier = event_files(spec.folder);
    std::uint64_t name_s = spec.start.time_ms / 1000;
    for (const std::filesystem::path& one : earlier)
      name_s = std::max(name_s, time_in_name(one) + 1);
    const std::string host = spec.start.hosts.empty() ? "host" : spec.start.hosts.front();
    path = spec.folder / fmt::format("{}{:010}.{}.{}.0", name_begins, name_s, host, ::getpid());
    if (!may_write()) return false;
    for (const std::filesystem::path& one : earlier) cut(one);
    file = open_regular(path, O_WRONLY | O_CREAT | O_EXCL);
    if (!file) fail("made");
    const double time_s = static_cast<double>(spec.start.time_ms) / 1e3;
    std::string events = framed(version_event(time_s));
    events += framed(restart_event(time_s, spec.start.from_step));
    events += framed(session_start_event(time_s, spec.config, spec.start));
    write_events(events);
    repeat_earlier(earlier.empty() ? 0 : spec.start.from_step);
    return true;
  }

  /// What this start says again is cut away, for readers that take each file alone.
  void cut(const std::filesystem::path& earlier) const {
    const std::string events = read_text(earlier);
    const std::size_t keep = bytes_before(events, spec.start.from_step);
    if (keep < events.size() && ::truncate(earlier.c_str(), static_cast<off_t>(keep)) != 0)
      throw InputError(fmt::format("{} cannot be cut: {}", earlier.string(), std::strerror(errno)));
  }

  /// What metrics.jsonl says of the steps from this one on, up to the line of this start.
  void repeat_earlier(std::uint64_t from_step) {
    if (spec.start.from_step == 0) return;
    std::string events;
    read_records(spec.metrics, [&](const Record& record) {
      if (const auto* start = std::get_if<StartRecord>(&record))
        return start->time_ms != spec.start.time_ms;
      if (step_of_curves(record).value_or(0) < std::max<std::uint64_t>(from_step, 1)) return true;
      events += framed(*curves_event(record));
      if (events.size() >= most_at_once_bytes) write_events(std::exchange(events, {}));
      return true;
    });
    write_events(events);
  }

  /// False when it must not write any more.
  bool write_until_end() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ending || wanted > on_disk || !buffer.empty(); });
      changed.wait_for(lock, most_delay, [this] { return ending || wanted > on_disk; });
      const std::string events = std::exchange(buffer, {});
      const std::uint64_t until = wanted;
      const bool to_disk = until > on_disk, last = ending;
      lock.unlock();
      if (!events.empty() && !may_write()) return false;
      write_events(events);
      if (to_disk && ::fdatasync(file.get()) != 0 && errno != EINVAL) fail("synchronised");
      lock.lock();
      on_disk = until;
      changed.notify_all();
      if (last) return true;
    }
  }

  void write_events(const std::string& events) {
    if (write_all(file.get(), events.data(), events.size()) < events.size()) fail("written");
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("{} cannot be {}: {}", path.string(), what, std::strerror(errno)));
  }

  void add(const WireMessage& event) {
    const std::scoped_lock lock(mutex);
    if (ended) return;
    if (buffer.size() > most_in_memory_bytes)
      return end_early(spec.folder.string() + " could not be written for long");
    const bool first = buffer.empty();
    buffer += framed(event);
    if (first) changed.notify_all();
  }

  void flush() {
    std::unique_lock lock(mutex);
    const std::uint64_t mine = ++wanted;
    changed.notify_all();
    changed.wait(lock, [&] { return ended || on_disk >= mine; });
  }

  const Spec spec;
  std::filesystem::path path;    ///< only the thread uses it
  Owned<int, ::close, -1> file;  ///< the same

  std::mutex mutex;  // guards all that follows
  std::condition_variable changed;
  std::string buffer;
  std::uint64_t wanted = 0, on_disk = 0;  ///< flushes that were asked for, and done
  bool ended = false;                     ///< nothing more is written
  bool ending = false;
  std::thread thread;  // last: it uses all the others
};

TensorBoardLog::TensorBoardLog(Spec spec) : impl_(std::make_unique<Impl>(std::move(spec))) {}

TensorBoardLog::~TensorBoardLog() = default;

void TensorBoardLog::write(const Record& record) {
  if (const auto curves = curves_event(record)) impl_->add(*curves);
  const auto* end = std::get_if<EndRecord>(&record);
  // Readers keep the first end that they see, and what was stopped or failed can be resumed.
  if (end != nullptr && (end->status == "finished" || end->status == "diverged"))
    impl_->add(
        session_end_event(static_cast<double>(end->time_ms) / 1e3, end->status == "finished"));
}

void TensorBoardLog::flush() { impl_->flush(); }

}  // namespace lockstep::observe
