#pragma once

#include <memory>

#include "data/chunked/block_cache.hpp"
#include "data/chunked/stored_images.hpp"
#include "data/shard/rows/row_checksums.hpp"
#include "data/shard/rows/rows.hpp"

namespace lockstep::data {

/// Rows that are decoded in blocks, which the data set's cache keeps. The caller must not hold an
/// h5::Session when it is destroyed.
class ChunkedRows final : public Rows {
 public:
  /// `cache` must outlive this.
  ChunkedRows(std::unique_ptr<StoredImages> images, BlockCache& cache, RowChecksums checksums);
  std::array<std::size_t, 2> size(std::size_t row) const override;
  std::size_t bytes(std::size_t) const override { return images_->form().count(); }
  void read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const override;
  bool prepare(std::size_t row) const override;
  void describe(Storage& storage) const override;

 private:
  std::size_t block_bytes(std::size_t block) const;

  std::unique_ptr<StoredImages> images_;
  BlockCache& cache_;
  std::size_t file_;  // in the cache
  RowChecksums checksums_;
};

}  // namespace lockstep::data
