#include "lockstep/data/loading/row_source.hpp"

#include <memory>

#include "lockstep/data/loading/loader.hpp"
#include "lockstep/data/loading/row_reader.hpp"

namespace lockstep::data {

DataSetRows::DataSetRows(const DataSet& rows, const AugmentSpec& spec)
    : rows_(rows),
      spec_(spec),
      info_(delivered(rows.info(), spec, rows.files().front().string())) {}

MakeRow DataSetRows::row_maker() const {
  return [reader = std::make_shared<RowReader>(rows_, spec_)](std::uint64_t epoch, std::size_t row,
                                                              std::span<std::uint8_t> image) {
    reader->read(epoch, row, image);
  };
}

// Workers that read the same block of a chunked file would wait for the one that decodes it. So
// each decodes a later block ahead, within what the cache holds.
std::size_t DataSetRows::usual_readahead(const LoaderSpec& loader) const {
  const Storage storage = rows_.storage();
  const SamplerSpec& sampler = loader.sampler;
  if (storage.contiguous || sampler.shuffle == Shuffle::global) return 0;
  const std::size_t block = storage.block_rows * rows_.info().row_bytes();
  const std::size_t kept = storage.cache_bytes / block;  // blocks
  const bool mixed = sampler.shuffle == Shuffle::block;
  const std::size_t together = mixed ? sampler.window + 1 : 1;
  if (kept < 2 * together + loader.workers) return 0;
  return mixed ? sampler.window * sampler.block : (loader.workers + 1) * storage.block_rows;
}

}  // namespace lockstep::data
