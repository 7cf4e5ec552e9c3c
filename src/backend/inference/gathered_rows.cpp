#include "lockstep/backend/inference/gathered_rows.hpp"

#include <cstring>

#include "lockstep/base/error.hpp"

namespace lockstep::backend {

GatheredRows::GatheredRows(std::size_t batch, std::size_t row_bytes, device::Device& device)
    : batch_(batch), row_bytes_(row_bytes), images_(device.allocate_pinned(batch * row_bytes)) {
  std::memset(images_.data(), 0, images_.size());
}

data::Batch GatheredRows::take(const data::Batch& from, const std::vector<std::size_t>& rows) {
  check(rows.size() <= batch_, "no more rows than were said");
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::memcpy(images_.data() + i * row_bytes_, from.images + rows[i] * row_bytes_, row_bytes_);
  return {.images = reinterpret_cast<const std::uint8_t*>(images_.data()),
          .rows = rows.size(),
          .capacity = batch_};
}

}  // namespace lockstep::backend
