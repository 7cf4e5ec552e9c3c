#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/bytes/file_bytes.hpp"
#include "data/chunked/block_cache.hpp"
#include "data/chunked/chunked_images.hpp"
#include "data/chunked/pixel_form.hpp"
#include "lockstep/data/data_set_info.hpp"

namespace lockstep::data {

/// The rows of one file of a data set. The way in which the file stores them decides the class:
/// ContiguousRows, JpegRows or ChunkedRows.
///
/// **Thread safety:** all const methods; mapping and copying through file() come before them.
class Rows {
 public:
  virtual ~Rows() = default;
  virtual std::array<std::size_t, 2> size(std::size_t row) const = 0;  ///< height, width
  virtual std::size_t bytes(std::size_t row) const = 0;                ///< that read() returns
  /// The row's pixels, or its JPEG file, checked with its label by their CRC-32C where the file has
  /// one. Throws BadRow, or InputError, naming the file and the row.
  virtual void read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const = 0;
  /// The same without a copy; empty where that is impossible: then read() them.
  virtual std::span<const std::uint8_t> in_place(std::size_t, std::int32_t) const { return {}; }
  /// See DataSet::prepare().
  virtual bool prepare(std::size_t row) const = 0;
  /// Describes how the rows lie in the file, unless another file is slower to read.
  virtual void describe(Storage& storage) const = 0;

  /// The pieces that can be mapped and copied, of each of which a row has a part; none: the rows do
  /// not lie in pieces.
  virtual std::vector<FileBytes*> files() { return {}; }
  /// Where the part of a row is in one of files(), as stored.
  virtual ByteRange range(std::size_t, std::size_t) const { return {}; }
};

/// CRC-32C of a row's pixels (elements with their lowest byte first) or JPEG and, after them, its
/// label as a little-endian 32-bit integer.
std::uint32_t row_crc(std::span<const std::uint8_t> image, std::int32_t label);

/// What stands for a label where a row has targets: the CRC-32C of these as float32, with their
/// lowest byte first. What is not known is the NaN 0x7fc00000.
std::int32_t label_of_targets(std::span<const float> targets);

/// The CRC-32C of each row of a shard; other programs' files have none.
class RowChecksums {
 public:
  RowChecksums() = default;
  /// `what` rows are: "pixels" or "JPEG".
  /// `targets`: what stands for each row's label, where that is no class; else empty.
  RowChecksums(std::filesystem::path path, std::string what, std::vector<std::uint32_t> crcs,
               std::vector<std::int32_t> targets = {});
  /// Throws BadRow naming the file and the row, or InputError when the row could not be read.
  /// `file`: where its bytes came from; null: from blocks.
  void check(std::size_t row, std::int32_t label, std::span<const std::uint8_t> bytes,
             const FileBytes* file) const;

 private:
  std::filesystem::path path_;
  std::string what_;
  std::vector<std::uint32_t> crcs_;
  std::vector<std::int32_t> targets_;
};

/// Rows of one size, one after the other in one piece: elements, or numbers that become elements.
class ContiguousRows final : public Rows {
 public:
  ContiguousRows(std::unique_ptr<FileBytes> file, const PixelForm& form, RowChecksums checksums);
  std::array<std::size_t, 2> size(std::size_t) const override {
    return {form_.height, form_.width};
  }
  std::size_t bytes(std::size_t) const override { return form_.row_bytes(); }
  void read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const override;
  std::span<const std::uint8_t> in_place(std::size_t row, std::int32_t label) const override;
  bool prepare(std::size_t row) const override;
  void describe(Storage& storage) const override;
  std::vector<FileBytes*> files() override { return {file_.get()}; }
  ByteRange range(std::size_t row, std::size_t = 0) const override;

 private:
  void read_converted(std::size_t row, std::uint8_t* pixels) const;

  std::unique_ptr<FileBytes> file_;
  PixelForm form_;
  RowChecksums checksums_;
};

/// Rows whose channels are taken from those of one or several others, each of one size.
class PickedRows final : public Rows {
 public:
  /// A channel of one of the parts.
  struct Pick {
    std::size_t part = 0, channel = 0;
  };
  PickedRows(std::vector<std::unique_ptr<Rows>> parts, std::vector<Pick> picks, Element element);
  std::array<std::size_t, 2> size(std::size_t row) const override { return parts_[0]->size(row); }
  std::size_t bytes(std::size_t row) const override;
  void read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const override;
  bool prepare(std::size_t row) const override;
  void describe(Storage& storage) const override;
  /// Those of all parts, if each has one.
  std::vector<FileBytes*> files() override;
  ByteRange range(std::size_t row, std::size_t file) const override;

 private:
  /// Channels of a part that are side by side both there and in a pixel.
  struct Run {
    std::size_t from = 0, to = 0, bytes = 0;
  };
  std::vector<std::unique_ptr<Rows>> parts_;
  std::vector<std::vector<Run>> runs_;  ///< of each part
  std::size_t pixel_bytes_;
};

/// Rows that are decoded in blocks, which the data set's cache keeps. The caller must not hold an
/// h5::Session when it is destroyed.
class ChunkedRows final : public Rows {
 public:
  /// `cache` must outlive this.
  ChunkedRows(std::unique_ptr<StoredImages> images, BlockCache& cache, RowChecksums checksums);
  std::array<std::size_t, 2> size(std::size_t row) const override;
  std::size_t bytes(std::size_t) const override { return images_->form().row_bytes(); }
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

/// JPEG files, one after the other in one piece.
class JpegRows final : public Rows {
 public:
  /// `ends`: [rows + 1], row r is bytes [ends[r], ends[r + 1]); `sizes`: [rows, 2], height and
  /// width.
  JpegRows(std::unique_ptr<FileBytes> file, std::vector<std::uint64_t> ends,
           std::vector<std::uint16_t> sizes, RowChecksums checksums);
  std::array<std::size_t, 2> size(std::size_t row) const override;
  std::size_t bytes(std::size_t row) const override { return ends_[row + 1] - ends_[row]; }
  void read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const override;
  bool prepare(std::size_t row) const override;
  void describe(Storage&) const override {}
  std::vector<FileBytes*> files() override { return {file_.get()}; }
  ByteRange range(std::size_t row, std::size_t = 0) const override {
    return {ends_[row], ends_[row + 1]};
  }

 private:
  std::unique_ptr<FileBytes> file_;
  std::vector<std::uint64_t> ends_;
  std::vector<std::uint16_t> sizes_;
  RowChecksums checksums_;
};

}  // namespace lockstep::data
