#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/channel_sums.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/data/shard_writer.hpp"
#include "lockstep/data/source.hpp"

namespace lockstep::data {

/// What of a source is packed, and how. Everything written follows from this and the source: the
/// number of ranks that share the work leaves no trace.
struct PackSpec {
  std::size_t height = 0,
              width = 0;     ///< images are stretched to this; 0: all have one size already
  std::size_t channels = 0;  ///< 1 or 3; 0: as the source has it
  double held_out = 0;  ///< share of each class's training rows that becomes the validation split,
                        ///< where the source has no split of its own
  std::uint64_t seed = 1;          ///< of the order of rows and of the choice of held-out rows
  std::size_t rows_per_shard = 0;  ///< at most; 0: chosen by plan_shards
  bool keep_order = false;         ///< rows stay in the source's order
  bool skip_bad = false;           ///< unreadable images are left out and listed
  bool jpeg = false;               ///< shards of JPEG files: those of the source as they are, other
                                   ///< images (and what does not fit the next line) encoded
  std::size_t short_side = 0;      ///< with jpeg: larger images are resized to it; 0: as they are
  int quality = 90;                ///< with jpeg: of what is encoded
};

/// One shard to be written: "train/train-00000-of-00008.h5", from these rows of the source, in this
/// order.
struct ShardPlan {
  std::filesystem::path file;
  bool training = true;
  std::vector<std::size_t> rows;
};

/// Which row goes where; a function of the source's rows alone. All training shards, then all
/// validation shards. Each split is shuffled and cut evenly; by default into 8 shards (fewer for
/// small sets, so that each has 1000 rows), or as many as keep one under 256 MB.
std::vector<ShardPlan> plan_shards(const Source& source, const PackSpec& spec,
                                   std::size_t row_bytes);

/// Shape and classes of the packed rows: what `spec` asks for, else what the first readable image
/// has. The normalisation is a placeholder.
DataSetInfo packed_info(const Source& source, const PackSpec& spec);

/// Bytes of a row, for plan_shards(): of JPEGs the mean of some that are spread over the source.
std::size_t packed_row_bytes(const Source& source, const PackSpec& spec, const DataSetInfo& info);

/// A row ready to be written: its pixels and, for a shard of JPEGs, its file.
struct PackedRow {
  Image image;
  std::string jpeg;
};

/// Reads a row of the source and brings it into the form that `spec` and `info` say. Throws
/// InputError naming an image that is unreadable.
PackedRow prepare_row(const Source& source, const PackSpec& spec, const DataSetInfo& info,
                      std::size_t row);

/// An image that was left out.
struct SkippedRow {
  std::size_t row = 0;  ///< of the source
  std::string reason;   ///< with its name
};

/// What is known of a shard that was written.
struct FinishedShard {
  std::size_t rows = 0;     ///< written
  std::uint64_t bytes = 0;  ///< of their pixels or JPEGs
  ChannelSums sums;         ///< of a training shard
  std::vector<SkippedRow> skipped;
};

/// The same of several shards.
struct Tally {
  std::size_t training_rows = 0, validation_rows = 0;
  std::uint64_t bytes = 0;
  ChannelSums sums;
  std::vector<SkippedRow> skipped;

  explicit Tally(std::size_t channels) : sums(channels) {}
  void add(const ShardPlan& shard, const FinishedShard& finished);
  void add(const Tally& other);
};

/// Writes some of a plan's shards under `folder` (see PackFolder), a piece at a time, and a note of
/// each. Bad images end it with InputError, or are left out: their shard is then written a second
/// time without them.
class Packer {
 public:
  Packer(const Source& source, const PackSpec& spec, const DataSetInfo& info,
         std::filesystem::path folder, std::vector<ShardPlan> shards);
  ~Packer();
  void advance(double seconds);  ///< goes on for about this long
  bool finished() const { return shard_ == shards_.size(); }
  std::size_t rows_done() const { return rows_done_; }  ///< rows of the plan dealt with so far
  const Tally& tally() const { return tally_; }         ///< of the shards that are finished

 private:
  void begin_pass();
  void take_row(std::size_t row);
  void end_pass();

  const Source& source_;
  PackSpec spec_;
  DataSetInfo info_;
  std::filesystem::path folder_;
  std::vector<ShardPlan> shards_;
  std::size_t shard_ = 0, position_ = 0;  ///< the shard that is being written, the row in it
  std::unique_ptr<ShardWriter> writer_;   ///< none once this pass has met a bad row
  bool second_pass_ = false;
  std::vector<std::size_t> bad_positions_;  ///< in the shard
  FinishedShard now_;
  Tally tally_;
  std::size_t rows_done_ = 0;
};

}  // namespace lockstep::data
