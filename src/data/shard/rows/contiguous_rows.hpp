#pragma once

#include <memory>

#include "data/chunked/pixel_form.hpp"
#include "data/shard/rows/row_checksums.hpp"
#include "data/shard/rows/rows.hpp"

namespace lockstep::data {

/// Rows of one size, one after the other in one piece: pixels, or numbers that become pixels.
class ContiguousRows final : public Rows {
 public:
  ContiguousRows(std::unique_ptr<FileBytes> file, const PixelForm& form, RowChecksums checksums);
  std::array<std::size_t, 2> size(std::size_t) const override {
    return {form_.height, form_.width};
  }
  std::size_t bytes(std::size_t) const override { return form_.count(); }
  void read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const override;
  std::span<const std::uint8_t> in_place(std::size_t row, std::int32_t label) const override;
  bool prepare(std::size_t row) const override;
  void describe(Storage& storage) const override;
  FileBytes* file() override { return file_.get(); }
  ByteRange range(std::size_t row) const override;

 private:
  void read_converted(std::size_t row, std::uint8_t* pixels) const;

  std::unique_ptr<FileBytes> file_;
  PixelForm form_;
  RowChecksums checksums_;
};

}  // namespace lockstep::data
