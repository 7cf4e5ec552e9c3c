#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/data_set_info.hpp"
#include "lockstep/data/loading/image_preparer.hpp"
#include "lockstep/pack/source/source.hpp"

namespace lockstep::pack {

/// What is packed, and how. The files follow from this and the source alone: the number of ranks
/// that share the work makes no difference.
struct PackSpec : data::ImageForm {
  std::size_t channels = 0;  ///< 1 or 3; 0: as the source has it
  /// Of images in files: uint8 or uint16; nullopt: as the first image, of which a PNG may have 16
  /// bits.
  std::optional<data::Element> element = {};
  double held_out = 0;  ///< share of each class's training rows that becomes the validation split,
                        ///< if the source has no validation split
  std::uint64_t seed = 1;          ///< of the order of rows and of the choice of held-out rows
  std::size_t rows_per_shard = 0;  ///< at most; 0: chosen by plan_shards
  bool keep_order = false;         ///< rows stay in the source's order
  bool skip_bad = false;           ///< unreadable images are left out and listed
};

/// One shard to be written: "train/train-00000-of-00008.h5", from these rows of the source, in this
/// order.
struct ShardPlan {
  std::filesystem::path file;
  bool training = true;
  std::vector<std::size_t> rows;
};

/// Decides which shard each row goes to; a function of the source's rows alone. All training shards
/// come first, then all validation shards. Each split is shuffled and cut evenly: by default into 8
/// shards (fewer for small sets, so that each has 1000 rows), or into as many as keep one under 256
/// MB.
std::vector<ShardPlan> plan_shards(const Source& source, const PackSpec& spec,
                                   std::size_t row_bytes);

/// What to say when rows should be held out, but classes are too small for that; else empty.
std::string say_not_held_out(const Source& source, const PackSpec& spec,
                             const std::vector<ShardPlan>& plan);

/// Shape and classes of the packed rows: as `spec` asks, else those of the first readable image.
/// The normalisation is a placeholder.
data::DataSetInfo packed_info(const Source& source, const PackSpec& spec);

}  // namespace lockstep::pack
