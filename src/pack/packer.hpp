#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/image/channel_sums.hpp"
#include "lockstep/data/image/image.hpp"
#include "lockstep/data/shard/shard_writer.hpp"
#include "lockstep/pack/pack_plan.hpp"
#include "lockstep/pack/source/source.hpp"

namespace lockstep::pack {

/// An image that was left out.
struct SkippedRow {
  std::size_t row = 0;  ///< of the source
  std::string reason;   ///< with the image's name
};

/// What a row is as it was packed, without its label, and where it is in the source.
struct RowHash {
  std::uint64_t hash = 0, row = 0;
};

/// The facts about a finished shard.
struct FinishedShard {
  std::size_t rows = 0;     ///< written
  std::uint64_t bytes = 0;  ///< of their pixels or JPEGs
  data::ChannelSums sums;   ///< of a training shard
  std::vector<SkippedRow> skipped;
  std::vector<RowHash> hashes = {};  ///< of the rows written; read_note() does not read them
};

/// Marks a shard of a plan as finished. Throws InputError naming the file.
void write_note(const std::filesystem::path& partial, const ShardPlan& shard,
                const FinishedShard& finished);

/// Empty when the shard is not finished. Throws InputError when its note is damaged. `info`: of the
/// packed rows.
std::optional<FinishedShard> read_note(const std::filesystem::path& partial, const ShardPlan& shard,
                                       const data::DataSetInfo& info);

/// The hashes of a finished shard's rows. Throws InputError naming the file.
std::vector<RowHash> read_hashes(const std::filesystem::path& partial, const ShardPlan& shard);

/// The totals of all shards, in their order.
struct Totals {
  std::size_t training_rows = 0, validation_rows = 0;
  std::uint64_t bytes = 0;
  data::ChannelSums sums;
  std::vector<SkippedRow> skipped;  ///< in the source's order
  explicit Totals(const data::DataSetInfo& info = {}) : sums(info) {}
};

/// What the notes of a plan's shards say. Throws Error naming one that is missing, and as
/// read_note().
Totals read_totals(const std::filesystem::path& partial, const std::vector<ShardPlan>& plan,
                   const data::DataSetInfo& info);

/// Classes that lost all of their training images, with how many these were.
std::vector<std::string> lost_classes(const Source& source, const std::vector<ShardPlan>& plan,
                                      const std::vector<SkippedRow>& skipped);

/// What to say of images that are equal, as they were packed, and have different classes, or are
/// one for training and one for validation. Reads the hashes of all shards.
std::vector<std::string> say_equal_images(const Source& source, const std::vector<ShardPlan>& plan,
                                          const std::filesystem::path& partial);

/// The image as it is packed, before its channels and size are changed. `element`: of those in
/// files.
data::Image read_image(const Source& source, const PackSpec& spec, data::Element element,
                       std::size_t row);

/// Bytes of a row, for plan_shards(). For JPEGs it is the mean of some rows spread over the source.
std::size_t packed_row_bytes(const Source& source, const PackSpec& spec,
                             const data::DataSetInfo& info);

/// Reads a row of the source and converts it to the form that `spec` and `info` give. Throws
/// InputError naming an image that is unreadable.
data::FormedImage prepare_row(const Source& source, const PackSpec& spec,
                              const data::DataSetInfo& info, std::size_t row);

/// Writes some of a plan's shards under `folder` (see PackFolder), piece by piece, and a note for
/// each. A bad image ends it with InputError, or is left out: then its shard is written a second
/// time without it.
class Packer {
 public:
  Packer(const Source& source, const PackSpec& spec, const data::DataSetInfo& info,
         std::filesystem::path folder, std::vector<ShardPlan> shards);
  ~Packer();
  void advance(double seconds);  ///< works for about this long
  bool finished() const { return shard_ == shards_.size(); }
  std::size_t rows_done() const { return rows_done_; }  ///< rows of the plan handled so far

 private:
  void begin_pass();
  void take_row(std::size_t row);
  void end_pass();

  const Source& source_;
  PackSpec spec_;
  data::DataSetInfo info_;
  std::filesystem::path folder_;
  std::vector<ShardPlan> shards_;
  std::size_t shard_ = 0, position_ = 0;       ///< the shard in work, the row in it
  std::unique_ptr<data::ShardWriter> writer_;  ///< none once this pass has met a bad row
  bool second_pass_ = false;
  std::vector<std::size_t> bad_positions_;  ///< in the shard
  FinishedShard now_;
  std::size_t name_bytes_;  ///< of the longest file name
  std::size_t rows_done_ = 0;
};

}  // namespace lockstep::pack
