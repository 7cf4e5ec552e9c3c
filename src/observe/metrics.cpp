#include "lockstep/observe/metrics.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <limits>
#include <sstream>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep::observe {
namespace {

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

Descriptor open_to_write(const std::filesystem::path& path) {
  // A pipe without a reader would keep open() for ever.
  return Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
}

/// Opens or creates the log, and cuts it.
AppendingFile::Target open_log(const std::filesystem::path& path, std::uint64_t keep_bytes) {
  AppendingFile::Target log{path, open_to_write(path)};
  if (!log.file) fail(path, "be opened for writing");
  struct stat status = {};
  if (::fstat(log.file.get(), &status) != 0) fail(path, "be looked at");
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes < keep_bytes)
    log::warn(
        fmt::format("{} is shorter than it was when the checkpoint was written ({} of {} "
                    "bytes): earlier lines are lost",
                    path.string(), bytes, keep_bytes));
  if (bytes > keep_bytes) {
    cut(path, keep_bytes);
    log.file = open_to_write(path);
  }
  const off_t end = log.file ? ::lseek(log.file.get(), 0, SEEK_END) : -1;
  if (end < 0) fail(path, "be continued");
  log.bytes = static_cast<std::uint64_t>(end);
  return log;
}

/// Guards the open log against a thread that ends the process.
std::mutex g_mutex;
MetricsLog* g_open = nullptr;

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path, std::uint64_t keep_bytes,
                       std::function<void()> require_writer, std::function<void()> before_wait)
    : file_({.target = open_log(path, keep_bytes),
             .prepare =
                 [this, require_writer = std::move(require_writer)](auto& log, auto& lines) {
                   if (require_writer) require_writer();
                   if (!lines.empty()) begin_again_if_removed(log, lines);
                 },
             .before_wait = std::move(before_wait)}) {
  const std::scoped_lock lock(g_mutex);
  g_open = this;
}

MetricsLog::~MetricsLog() {
  const std::scoped_lock lock(g_mutex);
  if (g_open == this) g_open = nullptr;
}

/// Someone may remove or replace the file while it is open. What was in it is lost, and what
/// follows would be lost, too. A new file begins with the start, which has the run's id.
void MetricsLog::begin_again_if_removed(AppendingFile::Target& log, std::string& lines) {
  struct stat mine = {}, there = {};
  if (::fstat(log.file.get(), &mine) != 0) return;
  const bool is_there = ::stat(log.path.c_str(), &there) == 0;
  if (is_there && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev) return;
  auto other = open_to_write(log.path);
  const off_t end = other ? ::lseek(other.get(), 0, SEEK_END) : -1;
  if (end < 0) return;  // the next checkpoint says what has become of the folder
  log.file = std::move(other);
  log.bytes = static_cast<std::uint64_t>(end);
  {
    const std::scoped_lock lock(mutex_);
    if (end == 0 && lines.find(start_) == std::string::npos) lines.insert(0, start_);
  }
  log::warn(
      fmt::format("{} was {} while it was written: its earlier lines are lost, and it "
                  "continues with this step's",
                  log.path.string(), is_there ? "replaced" : "removed"));
}

void MetricsLog::write(const Record& record) {
  const std::string line = to_json(record) + '\n';
  {
    const std::scoped_lock lock(mutex_);
    if (const auto* start = std::get_if<StartRecord>(&record)) {
      steps_ = start->from_step;
      start_ = line;
    }
    if (const auto* step = std::get_if<StepRecord>(&record)) steps_ = step->step;
    if (const auto* epoch = std::get_if<EpochRecord>(&record)) epochs_ = epoch->epoch;
  }
  const bool is_end = std::holds_alternative<EndRecord>(record);
  if (file_.add(line, is_end) && is_end) flush();
}

void end_metrics(const EndRecord& record) {
  const std::scoped_lock lock(g_mutex);
  if (g_open == nullptr) return;
  EndRecord end = record;
  {
    const std::scoped_lock newest(g_open->mutex_);
    end.steps = g_open->steps_;
    end.epochs = g_open->epochs_;
  }
  end.time_ms = unix_ms();
  g_open->file_.end(to_json(end) + '\n');
}

namespace {

double system_ms() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(since).count();
}

}  // namespace

std::uint64_t unix_ms() { return static_cast<std::uint64_t>(system_ms()); }

/// Between the readings of two clocks the thread may have to wait for a core, so the closest of
/// some readings counts.
std::uint64_t unix_ms_of(double then_ms) {
  constexpr double close_ms = 0.01;
  double between_ms = std::numeric_limits<double>::infinity(), offset_ms = 0;
  for (int tries = 0; tries < 10 && between_ms > close_ms; ++tries) {
    const double before_ms = now_ms(), system = system_ms(), after_ms = now_ms();
    if (after_ms - before_ms >= between_ms) continue;
    between_ms = after_ms - before_ms;
    offset_ms = system - before_ms;
  }
  return static_cast<std::uint64_t>(then_ms + offset_ms);
}

void Records::write(Record record) {
  std::visit([](auto& one) { one.time_ms = one.time_ms == 0 ? unix_ms() : one.time_ms; }, record);
  std::exception_ptr first;
  for (Sink* sink : sinks_) {
    try {
      sink->write(record);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::observe
