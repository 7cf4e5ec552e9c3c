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
  double forward_ms = 0;       ///< includes normalising the batch
  double backward_ms = 0;      ///< includes the loss, and the reductions that it hides
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
      std::nullopt;                                    ///< as StepReport has it
  std::optional<double> gradient_norm = std::nullopt;  ///< the same
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
  std::vector<std::string> bad_rows = {};  ///< those replaced in this epoch
  /// How long the slowest rank waited for data since the epoch began or was resumed: milliseconds
  /// per step, and as a share of the time in steps (0 to 1).
  double data_ms = 0, data_share = 0;
  std::optional<Validation> average = std::nullopt;  ///< of the weights' average (optim.ema)
};

/// A resume after which the bits are no longer those of an uninterrupted run. The lines and
/// checkpoints before it come from another configuration than that of config.toml.
struct ResumeRecord {
  std::uint64_t step = 0;            ///< steps done before it
  std::vector<std::string> changes;  ///< "optim.lr (0.1, now 0.2)"
};

/// Lines of JSON. Means that are not finite are null. Fields whose names end in _ms or _per_s are
/// times: except for them, a resumed run writes the same lines as an uninterrupted one.
std::string to_json(const StepRecord& record);
std::string to_json(const EpochRecord& record);
std::string to_json(const ResumeRecord& record);

/// metrics.jsonl. Rank 0 writes it through a buffer that holds at most a second. Every method
/// throws InputError naming the file and the system's reason.
/// **Thread safety:** none; the main thread uses it.
class MetricsLog {
 public:
  /// Opens or creates the file and cuts it after its first `keep_bytes` bytes: a resumed run writes
  /// the lines after them again.
  MetricsLog(std::filesystem::path path, std::uint64_t keep_bytes);
  ~MetricsLog();
  void add(const std::string& json);  ///< one line, without its end
  void flush();                       ///< writes everything to the file and the file to the disk
  std::uint64_t bytes() const { return bytes_; }  ///< length, including the buffer

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
