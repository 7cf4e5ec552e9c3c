#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/data/shard/data_set.hpp"

namespace lockstep::data {

struct LoaderSpec;

/// Makes one row of a batch [height, width, channels]. Each thread has its own, because it keeps
/// buffers between rows. Throws BadRow, or InputError, naming the image.
using MakeRow =
    std::function<void(std::uint64_t epoch, std::size_t row, std::span<std::uint8_t> image)>;

/// Where a loader's rows come from.
///
/// **Thread safety:** any thread may call all methods.
class RowSource {
 public:
  virtual ~RowSource() = default;
  /// The rows as they are made: their number, height, width and channels.
  virtual const DataSetInfo& info() const = 0;
  virtual std::int32_t label(std::size_t row) const = 0;  ///< -1: not known
  virtual MakeRow row_maker() const = 0;
  /// As DataSet::prepare().
  virtual bool prepare(std::size_t) const { return false; }
  /// How many rows ahead this loader should ask for where its spec does not say it.
  virtual std::size_t usual_readahead(const LoaderSpec&) const { return 0; }
};

/// A data set's rows, which RowReader makes by `spec`. `rows` must outlive it. The constructor
/// throws InputError as delivered() does.
class DataSetRows : public RowSource {
 public:
  DataSetRows(const DataSet& rows, const AugmentSpec& spec);
  const DataSetInfo& info() const override { return info_; }
  std::int32_t label(std::size_t row) const override { return rows_.labels()[row]; }
  MakeRow row_maker() const override;
  bool prepare(std::size_t row) const override { return rows_.prepare(row); }
  std::size_t usual_readahead(const LoaderSpec& loader) const override;

 private:
  const DataSet& rows_;
  AugmentSpec spec_;
  DataSetInfo info_;
};

}  // namespace lockstep::data
