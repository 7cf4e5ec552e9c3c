#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/h5_writer.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/model/preparation.hpp"

namespace lockstep::model {

/// How far a run has come: what it has consumed, never what it has only prefetched.
struct Progress {
  std::uint64_t step = 0;   ///< steps done since the run began
  std::uint64_t epoch = 0;  ///< the current one, from 0
  std::uint64_t batch = 0;  ///< steps done in this epoch; all of them: validation is due
  double loss_sum = 0;      ///< of this epoch so far, over all ranks; so are the next fields
  std::uint64_t rows = 0, top1 = 0;
  std::vector<std::string> bad_rows = {};  ///< broken and replaced in this epoch: a text each
  double best_score = -1;                  ///< of all validations; -1 before the first
  std::uint64_t best_epoch = 0;            ///< of that one, from 1; 0: there was none
  std::string score = {};                  ///< the name of that score; empty: top-1
  std::array<double, 3> sums = {};         ///< of this epoch: see backend::Metrics
};

/// The format that is written, where an exchange's state follows the HDF5 part, where the images'
/// elements are not uint8, where the task is not classes or the best validation not that of top-1,
/// where values change before they are normalised (all with or without what comes before), and the
/// oldest one that is read. From 3 on a file explains its network on its own.
inline constexpr int checkpoint_format = 3, format_with_parts = 4, format_with_element = 5,
                     format_with_task = 6, format_with_shaping = 7, oldest_checkpoint_format = 2;
/// The exchange that needs no word in a checkpoint: it has no state, and older files have no other.
inline constexpr const char* exact_exchange = "exact";

/// A part of an exchange's state that is too large to be in memory with all the others.
struct ExchangePart {
  std::string name;  ///< without blanks
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;  ///< of a file that is read
};

/// Everything in a checkpoint except the tensors.
struct CheckpointHeader {
  int format = checkpoint_format;  ///< of the file that was read
  Progress progress;
  std::string network;              ///< see network_text(); empty in a file of format 2
  Preparation preparation;          ///< of images; not known from a file of format 2
  std::string config;               ///< resolved, as TOML; empty where it was removed
  std::string backend;              ///< Backend::description(); bit-exactness depends on it
  std::string build;                ///< build_id(); bit-exactness depends on it, too
  std::uint64_t world = 1;          ///< ranks
  std::uint64_t replicas = 1;       ///< that shared a batch; an older file's are its ranks
  std::string placement = {};       ///< Nodes::placement(); empty in an older file
  std::uint64_t metrics_bytes = 0;  ///< length of metrics.jsonl when this was written
  data::DataSetInfo input;  ///< the training set as the network sees it; a position in it is only
                            ///< meaningful for this number of rows
  bool explains_itself() const { return format > oldest_checkpoint_format; }
  std::string exchange = exact_exchange;  ///< the name of the run's reduce::Exchange
  /// Its texts by name; none is empty. Only of a file that is written: see list_exchange_state().
  std::map<std::string, std::string> exchange_state = {};
};

/// One named tensor of a file, without its values.
struct TensorEntry {
  std::string name;  ///< "weights/conv1.weight", "momentum/conv1.weight", "ema/conv1.weight"
  std::vector<std::size_t> shape;
  std::uint32_t crc32c = 0;  ///< of its values: files with the same bits have the same
};

/// A checkpoint in memory, but for the parts of its exchange's state, which follow it in the file.
class CheckpointImage {
 public:
  /// `place`: of the list of parts.
  CheckpointImage(h5::FileImage image, std::vector<ExchangePart> parts, std::uint64_t place,
                  int format)
      : image_(std::move(image)), parts_(std::move(parts)), place_(place), format_(format) {}
  /// Takes the next bytes of the parts into account: call it with all of them before seal().
  void count(std::string_view bytes);
  /// The bytes of the file, complete with their checksum, which it computes. Any thread.
  std::string_view seal();
  std::size_t bytes() const { return image_.bytes().size(); }
  bool has_parts() const { return !parts_.empty(); }

 private:
  h5::FileImage image_;
  std::vector<ExchangePart> parts_;
  std::uint64_t place_;
  int format_;
  std::size_t part_ = 0;       ///< whose bytes come next
  std::uint64_t counted_ = 0;  ///< of its bytes
};

/// The most that an image of this state takes, in bytes.
std::size_t checkpoint_bytes(const CheckpointHeader& header, const backend::Parameters& parameters);

/// Copies the state into the image of a file. The file is HDF5 with groups `weights` (learned
/// tensors and running statistics), `momentum` and, if the parameters keep them, `ema` (the average
/// of all weights) and `second_moments`, in float32 in the plain layout under torchvision's names.
/// Header fields are attributes of the root. Class names, the network (bytes of JSON) and the
/// configuration (bytes of TOML) are data sets `classes`, `network` and `config`, because an
/// attribute holds only 64 KiB. data/CHECKPOINT.md specifies all of it. A user block of 512 bytes
/// before the HDF5 part holds the CRC-32C and the length of that part, so that a change of any byte
/// is found. The parts of an exchange's state follow it; a list in it has their checksums. The same
/// state gives the same bytes. Throws InputError naming `path`, where the file
/// will be, and the tensor that is not finite. `spare`: as in h5::Writer::in_memory().
/// `parts`: what will follow, in this order.
CheckpointImage make_checkpoint(const std::filesystem::path& path, const CheckpointHeader& header,
                                const backend::Parameters& parameters,
                                std::shared_ptr<h5::SpareMemory> spare = nullptr,
                                std::vector<ExchangePart> parts = {});

/// Writes the state to `path`, atomically. Throws Error naming the path and the reason; an older
/// file at `path` then stays.
void write_checkpoint(const std::filesystem::path& path, const CheckpointHeader& header,
                      const backend::Parameters& parameters);

/// True when the file begins like a checkpoint; does not verify the rest.
bool looks_like_checkpoint(const std::filesystem::path& path);

/// Checks the length of the file and every byte, but for the parts of an exchange's state. Throws
/// InputError naming it when it is missing, not a checkpoint, of a format that is not known,
/// truncated or altered.
void verify_checkpoint(const std::filesystem::path& path);

/// Verifies, then reads the header.
CheckpointHeader read_header(const std::filesystem::path& path);

/// The names of the exchange's state in a file that was verified; all of it may not fit into one
/// rank's memory.
std::vector<std::string> list_exchange_state(const std::filesystem::path& path);
/// The bytes of one of them. Throws InputError naming the file.
std::string read_exchange_state(const std::filesystem::path& path, const std::string& name);

/// The parts of the exchange's state that follow a verified file's HDF5 part, in their order.
std::vector<ExchangePart> list_exchange_parts(const std::filesystem::path& path);
/// Checks every part of it, of which `shares` callers each take others: this one's is `share`.
/// Throws InputError naming file and part.
void verify_exchange_parts(const std::filesystem::path& path, std::size_t share = 0,
                           std::size_t shares = 1);

/// Reads one part of a verified file, in pieces. Methods throw InputError naming file and part.
class ExchangePartReader {
 public:
  ExchangePartReader(const std::filesystem::path& path, const std::string& name);
  /// The next bytes. With the last one it checks them all.
  void read(std::span<std::byte> to);

 private:
  std::filesystem::path path_;
  ExchangePart part_;
  std::uint64_t offset_ = 0, left_ = 0;
  std::uint32_t sum_ = 0;
  Descriptor file_;
};

/// Verifies all, then lists all tensors, by group and name.
std::vector<TensorEntry> list_tensors(const std::filesystem::path& path);

/// Throws InputError naming the file and the first tensor that does not fit this network.
void require_tensors_of(const nn::Network& network, const std::filesystem::path& path);

/// Verifies, unless the file is as it was when it was `verified`: it is large, and on each rank.
/// Then fills weights and, if asked, the rest of a training's state: momentum, second
/// moments if the parameters keep them, and the average if they keep it, which begins again at the
/// weights if the file has none. Throws InputError naming the file and the first tensor that does
/// not fit this model, and if second moments are missing.
void load_tensors(const std::filesystem::path& path, backend::Parameters& parameters, bool momentum,
                  const std::optional<FileStamp>& verified = std::nullopt);

/// Verifies, then fills the weights with their average. Throws InputError as load_tensors() does,
/// and if the file has no average.
void load_average(const std::filesystem::path& path, backend::Parameters& parameters);

/// The folder of one run's checkpoints: the newest K, step-STEP.h5, and the best. A state that
/// validates better than all before it becomes best-STEP.h5, which stays as long as one of the
/// newest K counts it as its best; best.h5 is another name of the newest of them. So a run that
/// resumes from any of its checkpoints also finds the best of the steps up to there.
class CheckpointDirectory {
 public:
  CheckpointDirectory(std::filesystem::path directory, std::size_t keep);
  std::filesystem::path path_of(std::uint64_t step) const;  ///< DIR/step-00000390.h5
  std::filesystem::path best_of(std::uint64_t step) const;  ///< DIR/best-00000390.h5
  std::filesystem::path best() const;                       ///< DIR/best.h5
  std::vector<std::filesystem::path> newest_first() const;  ///< without the best
  /// The newest one before that step that is intact, but for the parts of its exchange's state, and
  /// of the step in its name; a warning names the others, which are skipped.
  std::optional<std::filesystem::path> newest_valid(std::uint64_t before = ~0ULL) const;
  /// Makes best.h5 another name of best_of(step), which must exist.
  void name_best(std::uint64_t step) const;
  /// Tidies the folder for a run that resumes from `at`, a checkpoint in `origin` (this directory
  /// or another run's). Checkpoints later than at.step are renamed to NAME.aside (or -2, ... where
  /// that is taken), with a warning: they are torn, or of a course not taken again. best.h5 becomes
  /// the best that `at` counts, taken from `origin`; if there is none, it is set aside, too.
  void go_on_from(const Progress& at, const CheckpointDirectory& origin) const;
  /// Removes all but the newest K and the best ones that these count, and the temporary files of
  /// interrupted writes.
  void prune() const;

 private:
  std::optional<std::filesystem::path> best_counted_by(const Progress& at) const;
  std::filesystem::path directory_;
  std::size_t keep_;
};

}  // namespace lockstep::model
