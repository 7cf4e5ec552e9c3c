#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/files/appending_file.hpp"
#include "lockstep/observe/records.hpp"

namespace lockstep::observe {

/// Milliseconds since 1970.
std::uint64_t unix_ms();
/// The same for the past moment at which now_ms() was `then_ms`.
std::uint64_t unix_ms_of(double then_ms);

/// A place where the records of a run go: a file, the log, a server. A new kind of output is a new
/// sink; nothing else changes.
class Sink {
 public:
  virtual ~Sink() = default;
  /// Takes the next record, in order. Throws InputError when it cannot be kept.
  virtual void write(const Record& record) = 0;
};

/// The stream of a run's records: each goes to all sinks, in the order in which these subscribed.
/// **Thread safety:** none; the main thread uses it.
class Records {
 public:
  /// The sink must outlive the stream, or its last write().
  void subscribe(Sink& sink) { sinks_.push_back(&sink); }
  /// Writes the present time into a record that has none. Every sink gets the record, even when
  /// another one throws; then the first exception continues.
  void write(Record record);

 private:
  std::vector<Sink*> sinks_;
};

/// metrics.jsonl. A thread writes the lines at most a second after they came, so that a file system
/// that does not answer does not keep the run waiting. Every method throws InputError naming the
/// file and the system's reason; what the thread finds is thrown by the next call of write() or
/// add(), once, and by each flush().
/// **Thread safety:** the main thread uses it; any thread may call flush(), bytes() and
/// end_metrics() meanwhile.
class MetricsLog final : public Sink {
 public:
  /// Opens or creates the file and cuts it after its first `keep_bytes` bytes: a resumed run writes
  /// the lines after them again. Starts, ends, checkpoints and ledgers after the cut are kept: they
  /// did happen. `require_writer` is called by the thread before it writes, and throws Error when
  /// this process may not write any more; `before_wait` by write() and add(), each time before they
  /// wait for the file system.
  MetricsLog(const std::filesystem::path& path, std::uint64_t keep_bytes,
             std::function<void()> require_writer = {}, std::function<void()> before_wait = {});
  ~MetricsLog() override;
  /// Waits only where 16 MiB of lines have not been written yet.
  void write(const Record& record) override;
  /// One line, without its end.
  void add(const std::string& json) { file_.add(json + '\n'); }
  void flush() { file_.flush(); }  ///< waits until everything is in the file and on the disk
  void request_flush() { file_.request_flush(); }        ///< the same without waiting
  std::uint64_t bytes() const { return file_.bytes(); }  ///< with what is not written yet

 private:
  friend void end_metrics(const EndRecord& record);
  void begin_again_if_removed(AppendingFile::Target& log, std::string& lines);

  std::mutex mutex_;          // guards the next three
  std::string start_;         ///< the line of the newest start
  std::uint64_t steps_ = 0;   ///< of the newest record of a step
  std::uint64_t epochs_ = 0;  ///< of the newest record of an epoch
  AppendingFile file_;        // last: its thread uses the others
};

/// For a thread that ends the process while the main thread is anywhere: writes what the open
/// MetricsLog still buffers and this end, with the steps and epochs of its newest records. Does
/// nothing where no log is open, an end is written, or this process may not write any more. Returns
/// after a second at most, also where the file system does not answer. Throws nothing. Any thread.
void end_metrics(const EndRecord& record);

}  // namespace lockstep::observe
