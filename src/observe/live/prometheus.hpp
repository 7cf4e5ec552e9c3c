#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "lockstep/observe/metrics.hpp"
#include "lockstep/observe/records.hpp"

namespace lockstep::observe {

/// The present state of a run as Prometheus reads it: text format 0.0.4, without time stamps.
/// Counts continue over resumes where records do (steps, images); sums of seconds begin with this
/// start, which a rate() understands.
/// **Thread safety:** text() may be called from any thread.
class PrometheusText final : public Sink {
 public:
  PrometheusText();
  ~PrometheusText() override;
  void write(const Record& record) override;
  std::string text() const;

 private:
  struct State;
  void take(const StartRecord& record);
  void take(const StepRecord& record);
  void take(const EpochRecord& record);
  void take(const RanksRecord& record);
  void take(const CheckpointRecord& record);
  void take(const LedgerRecord& record);
  void take(const ResumeRecord&) {}
  void take(const EndRecord&) {}

  mutable std::mutex mutex_;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::observe
