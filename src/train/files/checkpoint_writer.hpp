#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/backend/parameters.hpp"
#include "lockstep/base/files/background_writer.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/observe/records.hpp"

namespace lockstep::train {

/// What a state is kept as.
struct KeptAs {
  bool newest = true;  ///< step-STEP.h5
  bool best = false;   ///< best-STEP.h5
};

/// Brings the checkpoints of a run to the disk, one after the other, while steps continue: begin()
/// copies the state, and a thread writes the copy. At most `copies` of them are in memory. Older
/// checkpoints are removed once a newer one is on the disk, and best.h5 is named then.
/// **Thread safety:** the main thread uses it. The functions of Spec run on the writer's thread.
class CheckpointWriter {
 public:
  struct Spec {
    /// Of the state, for which there is memory in addition to a step's. 0: none: save() makes one
    /// in the place of a step's values, and waits until it is on the disk and its memory free.
    std::size_t copies = 2;
    std::function<void()> enter = {};   ///< called first
    std::function<void()> before = {};  ///< called before each is written; it may throw
    /// Called before anything is removed or named. Throws where a newer start has begun.
    std::function<void()> require_newest = {};
  };
  CheckpointWriter(const model::CheckpointDirectory& directory, Spec spec);

  /// The step is that of the header. Copies the state when there is memory for one more copy, and
  /// waits for that. A best whose turn has not come gives way to a newer best. Throws as
  /// make_checkpoint() and poll() do.
  void begin(KeptAs as, const model::CheckpointHeader& header,
             const backend::Parameters& parameters, std::vector<model::ExchangePart> parts = {});
  /// Puts the next bytes of the exchange's parts into the file.
  void add(std::string_view bytes);
  /// Leaves the rest to the thread. `began_s`: now_s() when the run began to wait for this
  /// checkpoint.
  void end(double began_s);
  bool busy() const { return writer_.unfinished() > 0; }
  /// How long the checkpoint that is being written has taken; 0 without one.
  double seconds() const { return writer_.seconds(); }
  /// Those that came to the disk since the last call. Warns of one that takes long. Throws
  /// Error naming the file that could not be written.
  std::vector<observe::CheckpointRecord> poll();
  /// Waits until all are on the disk, and says so where that takes long. Throws as poll().
  void finish() { writer_.wait(); }

 private:
  bool make_room(bool best);
  std::vector<std::filesystem::path> paths(KeptAs as, std::uint64_t step) const;

  model::CheckpointDirectory directory_;
  Spec spec_;
  std::shared_ptr<h5::SpareMemory> spare_;  ///< of the newest that is on the disk
  /// What begin() began.
  struct Draft {
    std::uint64_t step = 0;
    KeptAs as;
    std::vector<std::filesystem::path> paths;
    std::shared_ptr<model::CheckpointImage> image;
    std::shared_ptr<PendingPieces> file;  ///< null without parts
  };
  std::optional<Draft> draft_;
  struct Saved {
    std::uint64_t step = 0;
    KeptAs as;
    double blocked_ms = 0;
  };
  std::deque<Saved> saved_;  ///< what poll() has not told
  BackgroundWriter writer_;  ///< last: its thread uses the others
};

}  // namespace lockstep::train
