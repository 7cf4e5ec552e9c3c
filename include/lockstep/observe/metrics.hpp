#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "lockstep/base/owned.hpp"
#include "lockstep/observe/sink.hpp"

namespace lockstep::observe {

/// metrics.jsonl. Rank 0 writes it through a buffer that holds at most a second; an end is written
/// at once. Every method throws InputError naming the file and the system's reason.
/// **Thread safety:** the main thread uses it; any thread may call end_metrics() meanwhile.
class MetricsLog final : public Sink {
 public:
  /// Opens or creates the file and cuts it after its first `keep_bytes` bytes: a resumed run writes
  /// the lines after them again. Starts and ends after the cut are kept: they did happen.
  /// `require_writer` throws Error when this process may not write any more; see end_metrics().
  MetricsLog(std::filesystem::path path, std::uint64_t keep_bytes,
             std::function<void()> require_writer = {});
  ~MetricsLog() override;
  void write(const Record& record) override;
  void add(const std::string& json);  ///< one line, without its end
  void flush();                       ///< writes everything to the file and the file to the disk
  std::uint64_t bytes() const { return bytes_; }  ///< length, including the buffer

 private:
  friend void end_metrics(const EndRecord& record);
  // With the mutex locked:
  void end(EndRecord record);
  void append(const std::string& json);
  void synchronise();
  void write_buffer();
  void begin_again_if_removed();
  std::filesystem::path path_;
  std::function<void()> require_writer_;
  Owned<int, ::close, -1> file_;
  std::string buffer_;
  std::string start_;  ///< the line of the newest start
  std::uint64_t bytes_ = 0;
  double wrote_s_ = 0;        ///< now_s() of the last write
  std::uint64_t steps_ = 0;   ///< of the newest record of a step
  std::uint64_t epochs_ = 0;  ///< of the newest record of an epoch
  bool broken_ = false;       ///< a write failed, and the caller knows
  bool ended_ = false;        ///< nothing follows an end
};

/// For a thread that ends the process while the main thread is anywhere: writes what the open
/// MetricsLog still buffers and this end, with the steps and epochs of its newest records. Does
/// nothing where no log is open, an end is written, or this process may not write any more. Returns
/// after a second at most, also where the file system does not answer. Throws nothing. Any thread.
void end_metrics(const EndRecord& record);

}  // namespace lockstep::observe
