#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

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
  /// Writes Batch::wanted of a row. REQUIRES: info() has a task other than classes.
  virtual void wanted(std::size_t, std::span<float>) const {}
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
  void wanted(std::size_t row, std::span<float> to) const override;
  MakeRow row_maker() const override;
  bool prepare(std::size_t row) const override { return rows_.prepare(row); }
  std::size_t usual_readahead(const LoaderSpec& loader) const override;

 private:
  const DataSet& rows_;
  AugmentSpec spec_;
  DataSetInfo info_;
};

/// Seconds that one thread spent on each kind of work.
struct RowTimes {
  double read_s = 0;    ///< from the file, with its CRC-32C
  double decode_s = 0;  ///< of JPEGs
  double shape_s = 0;   ///< crop, resize, flip
  double colour_s = 0;  ///< effects, cutout
};

/// The data set as seen in batches: height and width are those of the rows that a RowReader makes
/// with `spec`. Throws InputError, naming `path`, when that is impossible: JPEGs without a target
/// size, or a window that is larger than rows of one size.
DataSetInfo delivered(const DataSetInfo& stored, const AugmentSpec& spec, const std::string& path);

/// Turns stored rows into rows of a batch: reads, decodes the needed part of a JPEG, crops,
/// resizes, flips. The result is a pure function of (spec.seed, epoch, row). `rows` must outlive
/// it.
///
/// **Thread safety:** one reader for each thread; it keeps its buffers between rows.
class RowReader {
 public:
  /// `spec` must suit the data set: see delivered().
  RowReader(const DataSet& rows, const AugmentSpec& spec);
  ~RowReader();
  RowReader(RowReader&&) noexcept;
  std::size_t row_bytes() const;  ///< of a finished row
  /// Throws BadRow, or InputError, naming the file and the row in it.
  void read(std::uint64_t epoch, std::size_t row, std::span<std::uint8_t> image);
  /// Adds its times to `times` from now on (at a small cost); null stops that. `times` must outlive
  /// the reader.
  void measure(RowTimes* times);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
