#include "data/shard/rows/chunked_rows.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::data {

ChunkedRows::ChunkedRows(std::unique_ptr<StoredImages> images, BlockCache& cache,
                         RowChecksums checksums)
    : images_(std::move(images)),
      cache_(cache),
      file_(cache.add_file()),
      checksums_(std::move(checksums)) {}

std::array<std::size_t, 2> ChunkedRows::size(std::size_t) const {
  return {images_->form().height, images_->form().width};
}

std::size_t ChunkedRows::block_bytes(std::size_t block) const {
  return images_->rows_of(block) * images_->form().count();
}

void ChunkedRows::read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const {
  const std::size_t rows = images_->block_rows(), block = row / rows;
  const auto kept = cache_.get({file_, block}, block_bytes(block),
                               [&](std::uint8_t* pixels) { images_->decode(block, pixels); });
  std::memcpy(to.data(), kept->memory.get() + row % rows * to.size(), to.size());
  checksums_.check(row, label, to, nullptr);
}

bool ChunkedRows::prepare(std::size_t row) const {
  const std::size_t block = row / images_->block_rows();
  try {
    return cache_.prepare({file_, block}, block_bytes(block),
                          [&](std::uint8_t* pixels) { images_->decode(block, pixels); });
  } catch (const InputError&) {
    return false;
  }
}

void ChunkedRows::describe(Storage& storage) const {
  const bool slower = images_->through_hdf5() && !storage.through_hdf5;
  if (slower || images_->block_rows() > storage.block_rows || storage.layout == "contiguous") {
    storage.layout = images_->layout();
    storage.through_hdf5 = storage.through_hdf5 || images_->through_hdf5();
  }
  storage.contiguous = false;
  const PixelForm& form = images_->form();
  storage.converted = storage.converted || (!form.is_bytes() && !is_float(form.number));
  storage.block_rows = std::max(storage.block_rows, images_->block_rows());
}

}  // namespace lockstep::data
