#include "lockstep/observe/metrics.hpp"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::observe {
namespace {

constexpr std::size_t most_buffered_bytes = 64 * 1024;
constexpr std::size_t most_waiting_bytes = std::size_t{16} << 20;  // minutes of most runs
constexpr std::chrono::seconds most_buffered{1};
constexpr std::chrono::seconds patience{1};  // with a file system, at the end of the process

using File = Owned<int, ::close, -1>;

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  fail_by_system(fmt::format("{} cannot {}", path.string(), what), errno);
}

/// The lines of starts, ends, checkpoints and ledgers.
std::string what_happened(std::string text) {
  std::istringstream lines(std::move(text));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (lines.eof()) break;
    try {
      const std::optional<Record> record = parse_record(line);
      if (record && (std::holds_alternative<StartRecord>(*record) ||
                     std::holds_alternative<EndRecord>(*record) ||
                     std::holds_alternative<CheckpointRecord>(*record) ||
                     std::holds_alternative<LedgerRecord>(*record)))
        kept += line + '\n';
    } catch (const InputError&) {
      continue;  // a damaged line, which is cut away
    }
  }
  return kept;
}

/// Cuts the file, but for what happened after the cut. A process that is killed meanwhile leaves
/// the old file or the new one.
void cut(const std::filesystem::path& path, std::uint64_t keep_bytes) {
  std::string text = read_text(path);
  const std::string later = what_happened(text.substr(keep_bytes));
  text.resize(keep_bytes);
  text += later;
  write_text_atomically(std::filesystem::canonical(path), text);
}

File open_to_write(const std::filesystem::path& path) {
  // A pipe without a reader would keep open() for ever.
  return File(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
}

}  // namespace

/// The lines pass from `buffer` to the thread, which alone touches the file and holds no lock
/// meanwhile.
struct MetricsLog::Impl {
  Impl(std::filesystem::path where, std::uint64_t keep_bytes, std::function<void()> require,
       std::function<void()> wait)
      : path(std::move(where)),
        require_writer(std::move(require)),
        before_wait(std::move(wait)),
        file(open_to_write(path)) {
    if (!file) fail(path, "be opened for writing");
    struct stat status = {};
    if (::fstat(file.get(), &status) != 0) fail(path, "be looked at");
    bytes = static_cast<std::uint64_t>(status.st_size);
    if (bytes < keep_bytes)
      log::warn(
          fmt::format("{} is shorter than it was when the checkpoint was written ({} of {} "
                      "bytes): earlier lines are lost",
                      path.string(), bytes, keep_bytes));
    if (bytes > keep_bytes) {
      cut(path, keep_bytes);
      file = open_to_write(path);
    }
    const off_t end = file ? ::lseek(file.get(), 0, SEEK_END) : -1;
    if (end < 0) fail(path, "be continued");
    bytes = static_cast<std::uint64_t>(end);
    thread = std::thread([this] { run(); });
  }

  ~Impl() {
    {
      const std::scoped_lock lock(mutex);
      ending = true;
    }
    changed.notify_all();
    thread.join();
    if (!error || told) return;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& reason) {
      log::error(reason.what());
    }
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ending || wanted > on_disk || !buffer.empty(); });
      changed.wait_for(lock, most_buffered, [this] {
        return ending || wanted > on_disk || urgent || buffer.size() >= most_buffered_bytes;
      });
      if (ending && buffer.empty()) return;
      std::string lines = std::exchange(buffer, {});
      const std::uint64_t until = appended, flushes = wanted;
      const bool to_disk = flushes > on_disk;
      lock.unlock();
      std::exception_ptr failure;
      try {
        write_lines(lines);
        if (to_disk && ::fdatasync(file.get()) != 0 && errno != EINVAL)
          fail(path, "be synchronised");
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      written = until;
      on_disk = flushes;
      if (failure) {
        error = failure;
        buffer.clear();
      }
      changed.notify_all();
      if (failure) return;
    }
  }

  void write_lines(std::string& lines) {
    if (require_writer) require_writer();
    if (lines.empty()) return;
    begin_again_if_removed(lines);
    if (write_all(file.get(), lines.data(), lines.size()) < lines.size()) fail(path, "be written");
  }

  /// Someone may remove or replace the file while it is open. What was in it is lost, and what
  /// follows would be lost, too. A new file begins with the start, which has the run's id.
  void begin_again_if_removed(std::string& lines) {
    struct stat mine = {}, there = {};
    if (::fstat(file.get(), &mine) != 0) return;
    const bool is_there = ::stat(path.c_str(), &there) == 0;
    if (is_there && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev) return;
    File other = open_to_write(path);
    const off_t end = other ? ::lseek(other.get(), 0, SEEK_END) : -1;
    if (end < 0) return;  // the next checkpoint says what has become of the folder
    file = std::move(other);
    {
      const std::scoped_lock lock(mutex);
      if (end == 0 && lines.find(start) == std::string::npos) lines.insert(0, start);
      bytes = static_cast<std::uint64_t>(end) + lines.size() + buffer.size();
    }
    log::warn(
        fmt::format("{} was {} while it was written: its earlier lines are lost, and it "
                    "continues with this step's",
                    path.string(), is_there ? "replaced" : "removed"));
  }

  /// REQUIRES: the lock.
  void append(const std::string& json) {
    const bool first = buffer.empty();
    buffer += json;
    buffer += '\n';
    bytes += json.size() + 1;
    ++appended;
    if (first || buffer.size() >= most_buffered_bytes) changed.notify_all();
  }

  /// REQUIRES: the lock. `said`: the caller tells the error.
  void rethrow(bool said) {
    if (!error) return;
    told = told || said;
    std::rethrow_exception(error);
  }

  /// Nothing follows an end.
  void add(const std::string& json, bool is_end = false) {
    std::unique_lock lock(mutex);
    const auto has_room = [this] { return error || buffer.size() < most_waiting_bytes; };
    if (before_wait && !has_room()) before_wait();
    changed.wait(lock, has_room);
    if (ended || (error && told)) return;
    rethrow(true);
    append(json);
    ended = is_end;
  }

  /// Returns its number.
  std::uint64_t request_flush() {
    const std::scoped_lock lock(mutex);
    changed.notify_all();
    return ++wanted;
  }

  /// Also without new lines, the thread looks whether this process may still write.
  void flush() {
    const std::uint64_t mine = request_flush();
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return error || on_disk >= mine; });
    rethrow(true);
  }

  /// Returns after `patience` at most.
  void end(EndRecord record) {
    std::unique_lock lock(mutex);
    if (std::exchange(ended, true) || error) return;
    record.steps = steps;
    record.epochs = epochs;
    record.time_ms = unix_ms();
    append(to_json(record));
    told = urgent = true;  // the process ends for another reason, which is told
    const std::uint64_t all = appended;
    changed.notify_all();
    changed.wait_for(lock, patience, [&] { return error || written >= all; });
  }

  const std::filesystem::path path;
  const std::function<void()> require_writer, before_wait;
  File file;  ///< only the thread uses it

  std::mutex mutex;  // guards all that follows
  std::condition_variable changed;
  std::string buffer;
  std::string start;  ///< the line of the newest start
  std::uint64_t bytes = 0;
  std::uint64_t appended = 0, written = 0;  ///< lines
  std::uint64_t wanted = 0, on_disk = 0;    ///< flushes that were asked for, and done
  std::uint64_t steps = 0;                  ///< of the newest record of a step
  std::uint64_t epochs = 0;                 ///< of the newest record of an epoch
  std::exception_ptr error;
  bool told = false;    ///< someone knows the error
  bool urgent = false;  ///< the process ends
  bool ended = false;   ///< nothing follows an end
  bool ending = false;
  std::thread thread;  // last: it uses all the others
};

namespace {

/// Guards the open log against a thread that ends the process.
std::mutex g_mutex;
MetricsLog* g_open = nullptr;

}  // namespace

MetricsLog::MetricsLog(std::filesystem::path path, std::uint64_t keep_bytes,
                       std::function<void()> require_writer, std::function<void()> before_wait)
    : impl_(std::make_unique<Impl>(std::move(path), keep_bytes, std::move(require_writer),
                                   std::move(before_wait))) {
  const std::scoped_lock lock(g_mutex);
  g_open = this;
}

MetricsLog::~MetricsLog() {
  const std::scoped_lock lock(g_mutex);
  if (g_open == this) g_open = nullptr;
}

void MetricsLog::write(const Record& record) {
  const std::string json = to_json(record);
  const bool is_end = std::holds_alternative<EndRecord>(record);
  {
    const std::scoped_lock lock(impl_->mutex);
    if (const auto* start = std::get_if<StartRecord>(&record)) {
      impl_->steps = start->from_step;
      impl_->start = json + '\n';
    }
    if (const auto* step = std::get_if<StepRecord>(&record)) impl_->steps = step->step;
    if (const auto* epoch = std::get_if<EpochRecord>(&record)) impl_->epochs = epoch->epoch;
    if (is_end && (impl_->ended || (impl_->error && impl_->told))) return;
  }
  impl_->add(json, is_end);
  if (is_end) impl_->flush();
}

void MetricsLog::add(const std::string& json) { impl_->add(json); }

void MetricsLog::flush() { impl_->flush(); }

void MetricsLog::request_flush() { impl_->request_flush(); }

std::uint64_t MetricsLog::bytes() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->bytes;
}

void end_metrics(const EndRecord& record) {
  const std::scoped_lock lock(g_mutex);
  if (g_open != nullptr) g_open->impl_->end(record);
}

}  // namespace lockstep::observe
