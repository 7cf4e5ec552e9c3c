#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::observe {

/// Where one step's time went, on this rank.
struct StepTimes {
  double data_ms = 0;          ///< waiting for the loader
  double forward_ms = 0;       ///< with the batch's normalisation
  double backward_ms = 0;      ///< with the loss, and the reductions that it hides
  double exposed_comm_ms = 0;  ///< waiting for reductions that backward did not hide
  double update_ms = 0;
  double total_ms() const {
    return data_ms + forward_ms + backward_ms + exposed_comm_ms + update_ms;
  }
};

/// One line of metrics.jsonl. Steps and epochs are counted from 1 here. Loss is the mean over the
/// global batch (null when a skipped step overflowed it), times are rank 0's.
struct StepRecord {
  std::uint64_t step = 0, epoch = 0;
  double loss = 0;
  float lr = 0;
  StepTimes times;
  std::optional<backend::arithmetic::LossScale> loss_scale =
      std::nullopt;  ///< as StepReport has it
};

/// Means over a whole validation set.
struct Validation {
  double loss = 0, top1 = 0, top5 = 0;  ///< top1, top5: share of rows, 0 to 1
};

struct EpochRecord {
  std::uint64_t epoch = 0, step = 0;  ///< step: the last of the epoch
  double train_loss = 0, train_top1 = 0;
  std::optional<Validation> validation;
  double images_per_s = 0;  ///< in training, over all ranks, since the epoch began or was resumed
  std::vector<std::string> bad_rows = {};  ///< that were replaced in this epoch
  /// Waiting for data, of the rank that waited longest, since the epoch began or was resumed: a
  /// step's milliseconds, and the share of the time in steps (0 to 1).
  double data_ms = 0, data_share = 0;
};

/// A resume under which the bits are no longer those of an uninterrupted run: what the lines and
/// checkpoints before it owe to another configuration than config.toml's.
struct ResumeRecord {
  std::uint64_t step = 0;            ///< steps done before it
  std::vector<std::string> changes;  ///< "optim.lr (0.1, now 0.2)"
};

/// Lines of JSON. Means that are not finite are null. Fields whose name ends in _ms or _per_s are
/// times: a run that was interrupted and resumed writes the same lines as one that was not, but for
/// them.
std::string to_json(const StepRecord& record);
std::string to_json(const EpochRecord& record);
std::string to_json(const ResumeRecord& record);

/// metrics.jsonl, written by rank 0 through a buffer that holds no more than a second. Every method
/// throws InputError naming the file and the system's reason.
class MetricsLog {
 public:
  /// Opens or creates the file and cuts it off behind its first `keep_bytes` bytes: what a resumed
  /// run will say again.
  MetricsLog(std::filesystem::path path, std::uint64_t keep_bytes);
  ~MetricsLog();
  void add(const std::string& json);  ///< one line, without its end
  void flush();                       ///< everything is in the file, and the file on the disk
  std::uint64_t bytes() const { return bytes_; }  ///< length, with what is still in the buffer

 private:
  void write_buffer();
  std::filesystem::path path_;
  Owned<int, ::close, -1> file_;
  std::string buffer_;
  std::uint64_t bytes_ = 0;
  double wrote_s_ = 0;   ///< now_s() of the last write
  bool broken_ = false;  ///< a write failed, and the caller knows
};

}  // namespace lockstep::observe
