#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

#include "lockstep/data/image/image.hpp"
#include "lockstep/data/shard/shard_writer.hpp"
#include "lockstep/pack/pack_plan.hpp"
#include "pack/pack_note.hpp"

namespace lockstep::pack {

/// The image as it is packed, before its channels and size are changed.
data::Image read_image(const Source& source, const PackSpec& spec, std::size_t row);

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
