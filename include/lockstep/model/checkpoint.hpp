#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/data/data_set_info.hpp"

namespace lockstep::model {

/// Where a run stands: what has been consumed, never what was prefetched.
struct Progress {
  std::uint64_t step = 0;   ///< steps done since the run began
  std::uint64_t epoch = 0;  ///< that is under way, from 0
  std::uint64_t batch = 0;  ///< steps done in this epoch; may equal its steps: validation is due
  double loss_sum = 0;      ///< of this epoch so far, over all ranks, as all that follows
  std::uint64_t rows = 0, top1 = 0;
  std::vector<std::string> bad_rows = {};  ///< of this epoch so far: broken and replaced, in words
  double best_top1 = -1;                   ///< of all validations; -1 before the first
  std::uint64_t best_epoch = 0;
};

/// Everything in a checkpoint beside the tensors.
struct CheckpointHeader {
  Progress progress;
  std::string config;               ///< resolved, as TOML
  std::string backend;              ///< Backend::description(): what bit-exactness depends on
  std::string build;                ///< build_id(): the same
  std::uint64_t world = 1;          ///< ranks
  std::uint64_t metrics_bytes = 0;  ///< length of metrics.jsonl when this was written
  data::DataSetInfo input;  ///< the training set as the network sees it; a position in it means
                            ///< nothing in a set with another number of rows
};

/// One named tensor of a file, without its values.
struct TensorEntry {
  std::string name;  ///< "weights/conv1.weight", "momentum/conv1.weight"
  std::vector<std::size_t> shape;
  std::uint32_t crc32c = 0;  ///< of its values: equal in two files that hold the same bits
};

/// Writes the state to `path`, atomically: HDF5 with groups `weights` (learned tensors and running
/// statistics) and `momentum`, float32 in the plain layout under torchvision's names, header fields
/// as attributes of the root, class names and the configuration (bytes of TOML) as data sets
/// `classes` and `config`, which an attribute's 64 KiB would not always hold. A user block of 512
/// bytes before the HDF5 part carries its CRC-32C and length, so that any change of any byte of the
/// file is found. The same state gives the same bytes. Throws InputError naming the path and the
/// reason, which a tensor that is not finite is, too; an older file at `path` stays.
void write_checkpoint(const std::filesystem::path& path, const CheckpointHeader& header,
                      const backend::Parameters& parameters);

/// True when the file begins as a checkpoint does; says nothing about its health.
bool looks_like_checkpoint(const std::filesystem::path& path);

/// Checks every byte of the file. Throws InputError naming it when it is missing, no checkpoint,
/// truncated or altered.
void verify_checkpoint(const std::filesystem::path& path);

/// Verifies, then reads the header.
CheckpointHeader read_header(const std::filesystem::path& path);

/// Verifies, then lists all tensors, by group and name.
std::vector<TensorEntry> list_tensors(const std::filesystem::path& path);

/// Verifies, then fills weights and, when asked, momentum. Throws InputError naming the file and
/// the first tensor by which its model differs.
void load_tensors(const std::filesystem::path& path, backend::Parameters& parameters,
                  bool momentum);

/// The checkpoints of one run: the newest K, step-STEP.h5, and the best. A state that validates
/// better than all before it becomes best-STEP.h5, which stays as long as one of the newest K
/// counts it as its best; best.h5 is another name of the newest of them. So a run that goes on from
/// any of its checkpoints goes on with the best of the steps up to there.
class CheckpointDirectory {
 public:
  CheckpointDirectory(std::filesystem::path directory, std::size_t keep);
  std::filesystem::path path_of(std::uint64_t step) const;  ///< DIR/step-00000390.h5
  std::filesystem::path best_of(std::uint64_t step) const;  ///< DIR/best-00000390.h5
  std::filesystem::path best() const;                       ///< DIR/best.h5
  std::vector<std::filesystem::path> newest_first() const;  ///< without the best
  /// The newest one that is whole; torn or altered ones are named in a warning and passed over.
  std::optional<std::filesystem::path> newest_valid() const;
  /// Makes best.h5 another name of best_of(step), which is there.
  void name_best(std::uint64_t step) const;
  /// Puts in order what a run finds that goes on from `at`, read in `origin`, the same directory or
  /// another run's. Checkpoints behind at.step are renamed to NAME.aside, with a warning: they are
  /// torn or of a course that the run does not take again. best.h5 becomes the best that `at`
  /// counts, taken from `origin`; where there is none, it is set aside, too.
  void go_on_from(const Progress& at, const CheckpointDirectory& origin) const;
  /// Removes all but the newest K and the best ones that these count, and what an interrupted write
  /// has left behind.
  void prune() const;

 private:
  std::optional<std::filesystem::path> best_counted_by(const Progress& at) const;
  std::filesystem::path directory_;
  std::size_t keep_;
};

}  // namespace lockstep::model
