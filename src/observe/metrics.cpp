#include "lockstep/observe/metrics.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/base/io.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep::observe {
namespace {

constexpr std::size_t most_buffered_bytes = 64 * 1024;
constexpr double most_buffered_s = 1;
constexpr std::chrono::seconds patience{1};  // with a file system, at the end of the process

/// Guards the open log and its contents against a thread that ends the process.
std::timed_mutex g_mutex;
MetricsLog* g_open = nullptr;

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw InputError(fmt::format("{} cannot {}: {}", path.string(), what, std::strerror(errno)));
}

/// The lines of starts and ends after the first `keep_bytes` bytes.
std::string starts_and_ends(const std::filesystem::path& path, std::uint64_t keep_bytes) {
  std::istringstream lines(read_text(path).substr(keep_bytes));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (lines.eof()) break;
    try {
      const std::optional<Record> record = parse_record(line);
      if (record && (std::holds_alternative<StartRecord>(*record) ||
                     std::holds_alternative<EndRecord>(*record)))
        kept += line + '\n';
    } catch (const InputError&) {
      continue;  // a damaged line, which is cut away
    }
  }
  return kept;
}

Owned<int, ::close, -1> open_to_write(const std::filesystem::path& path) {
  // A pipe without a reader would keep open() for ever.
  constexpr int how = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK;
  return Owned<int, ::close, -1>(::open(path.c_str(), how, 0644));
}

}  // namespace

MetricsLog::MetricsLog(std::filesystem::path path, std::uint64_t keep_bytes,
                       std::function<void()> require_writer)
    : path_(std::move(path)),
      require_writer_(std::move(require_writer)),
      file_(open_to_write(path_)),
      wrote_s_(now_s()) {
  if (!file_) fail(path_, "be opened for writing");
  struct stat status = {};
  if (::fstat(file_.get(), &status) != 0) fail(path_, "be looked at");
  bytes_ = static_cast<std::uint64_t>(status.st_size);
  if (bytes_ < keep_bytes)
    log::warn(
        fmt::format("{} is shorter than it was when the checkpoint was written ({} of {} "
                    "bytes): earlier lines are lost",
                    path_.string(), bytes_, keep_bytes));
  const bool longer = bytes_ > keep_bytes;
  bytes_ = std::min(bytes_, keep_bytes);
  const std::string kept = longer ? starts_and_ends(path_, keep_bytes) : "";
  if (longer && ::ftruncate(file_.get(), static_cast<off_t>(bytes_)) != 0) fail(path_, "be cut");
  if (::lseek(file_.get(), 0, SEEK_END) < 0) fail(path_, "be positioned");
  buffer_ = kept;
  bytes_ += kept.size();
  const std::scoped_lock lock(g_mutex);
  g_open = this;
}

MetricsLog::~MetricsLog() {
  const std::scoped_lock lock(g_mutex);
  if (g_open == this) g_open = nullptr;
  const bool told = broken_;
  try {
    write_buffer();
  } catch (const Error& error) {
    if (!told) log::error(error.what());
  }
}

void MetricsLog::write(const Record& record) {
  const std::scoped_lock lock(g_mutex);
  if (const auto* start = std::get_if<StartRecord>(&record)) {
    steps_ = start->from_step;
    start_ = to_json(record) + '\n';
  }
  if (const auto* step = std::get_if<StepRecord>(&record)) steps_ = step->step;
  if (const auto* epoch = std::get_if<EpochRecord>(&record)) epochs_ = epoch->epoch;
  append(to_json(record));
  if (broken_ || !std::holds_alternative<EndRecord>(record)) return;
  synchronise();
  ended_ = true;
}

void MetricsLog::add(const std::string& json) {
  const std::scoped_lock lock(g_mutex);
  append(json);
}

void MetricsLog::append(const std::string& json) {
  if (ended_ || broken_) return;
  buffer_ += json;
  buffer_ += '\n';
  bytes_ += json.size() + 1;
  if (buffer_.size() >= most_buffered_bytes || now_s() - wrote_s_ > most_buffered_s) write_buffer();
}

void MetricsLog::flush() {
  const std::scoped_lock lock(g_mutex);
  synchronise();
}

void MetricsLog::synchronise() {
  write_buffer();
  if (::fdatasync(file_.get()) != 0 && errno != EINVAL) fail(path_, "be synchronised");
}

/// Someone may remove or replace the file while it is open. What was in it is lost, and what
/// follows would be lost, too. A new file begins with the start, which has the run's id.
void MetricsLog::begin_again_if_removed() {
  struct stat mine = {}, there = {};
  if (::fstat(file_.get(), &mine) != 0) return;
  const bool is_there = ::stat(path_.c_str(), &there) == 0;
  if (is_there && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev) return;
  Owned<int, ::close, -1> other = open_to_write(path_);
  const off_t end = other ? ::lseek(other.get(), 0, SEEK_END) : -1;
  if (end < 0) return;  // the next checkpoint says what has become of the folder
  file_ = std::move(other);
  if (end == 0 && buffer_.find(start_) == std::string::npos) buffer_.insert(0, start_);
  bytes_ = static_cast<std::uint64_t>(end) + buffer_.size();
  log::warn(
      fmt::format("{} was {} while it was written: its earlier lines are lost, and it "
                  "continues with this step's",
                  path_.string(), is_there ? "replaced" : "removed"));
}

void MetricsLog::write_buffer() {
  wrote_s_ = now_s();
  if (!buffer_.empty()) begin_again_if_removed();
  const std::size_t done = write_all(file_.get(), buffer_.data(), buffer_.size());
  if (done < buffer_.size()) {
    const int reason = errno;
    buffer_.erase(0, done);  // the destructor's second attempt must not repeat whole lines
    broken_ = true;
    errno = reason;
    fail(path_, "be written");
  }
  buffer_.clear();
}

void MetricsLog::end(EndRecord record) {
  if (ended_) return;
  try {
    if (require_writer_) require_writer_();
    record.steps = steps_;
    record.epochs = epochs_;
    record.time_ms = unix_ms();
    append(to_json(record));
    write_buffer();
  } catch (const std::exception&) {
    buffer_.clear();  // the process ends for another reason, which is told
  }
  ended_ = true;
}

void end_metrics(const EndRecord& record) {
  auto done = std::make_shared<std::promise<void>>();
  const std::future<void> end = done->get_future();
  std::thread([record, done] {
    if (const std::unique_lock lock(g_mutex, patience); lock && g_open != nullptr)
      g_open->end(record);
    done->set_value();
  }).detach();
  end.wait_for(patience);
}

}  // namespace lockstep::observe
