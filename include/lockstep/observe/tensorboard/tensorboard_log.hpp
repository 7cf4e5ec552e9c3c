#pragma once

#include <filesystem>
#include <functional>

#include "lockstep/base/files/appending_file.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/observe/metrics.hpp"

namespace lockstep::observe {

/// A run's curves and configuration for TensorBoard, in a file for each start of the run. A thread
/// makes and writes it at most a second after the records came, so that a file system that does not
/// answer does not keep the run waiting. Nothing here ends a run: what fails is one line of the
/// log, and the file ends there.
///
/// A start continues the curves where its checkpoint was: earlier files are cut before that step,
/// readers that have already seen more forget it, and the file begins with the points of the step
/// itself, from metrics.jsonl. So each step has one point. Where no earlier file is, it begins with
/// all of them.
/// **Thread safety:** the main thread uses it; any thread may call flush() meanwhile.
class TensorBoardLog final : public Sink {
 public:
  struct Spec {
    std::filesystem::path folder;  ///< made where it is not
    /// The run's metrics.jsonl, which holds the lines until `start.from_step`.
    std::filesystem::path metrics;
    StartRecord start;
    config::Config config;
    /// Called by the thread before it writes; throws Error when this process may not any more.
    std::function<void()> require_writer = {};
  };
  explicit TensorBoardLog(Spec spec);
  void write(const Record& record) override;  ///< throws nothing, and does not wait
  /// Waits until everything is in the file and on the disk, or the file has ended. Throws nothing.
  void flush() { file_.flush(); }

 private:
  void require_writer() const;
  void begin(AppendingFile::Target& target) const;
  void cut(const std::filesystem::path& earlier) const;
  void repeat_earlier(AppendingFile::Target& target, std::uint64_t from_step) const;

  const Spec spec_;
  AppendingFile file_;  // last: its thread uses the other
};

}  // namespace lockstep::observe
