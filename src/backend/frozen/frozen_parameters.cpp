#include "backend/frozen/frozen_parameters.hpp"

#include <array>
#include <map>
#include <string>
#include <utility>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::backend {

namespace {

/// The trained part's layout, and after it the other part's slices. Both count nodes as `network`.
nn::ArenaLayout joined(const nn::Network& network, const nn::ArenaLayout& frozen,
                       const nn::ArenaLayout& trained) {
  std::map<std::string, std::size_t> nodes;
  for (const nn::Tensor& tensor : nn::tensors(network)) nodes[tensor.name] = tensor.node;
  nn::ArenaLayout all = trained;
  for (nn::Slice slice : frozen.slices) {
    slice.offset += trained.size;
    all.slices.push_back(std::move(slice));
  }
  for (nn::Slice& slice : all.slices) slice.tensor.node = nodes.at(slice.tensor.name);
  all.frozen_slices = frozen.slices.size();
  all.frozen_size = frozen.size;
  return all;
}

}  // namespace

FrozenParameters::FrozenParameters(const nn::Network& network, std::unique_ptr<Parameters> frozen,
                                   std::unique_ptr<Parameters> trained)
    : frozen_(std::move(frozen)),
      trained_(std::move(trained)),
      layout_(joined(network, frozen_->layout(), trained_->layout())) {}

void FrozenParameters::import_slice(Part part, std::size_t slice, std::span<const float> plain) {
  if (slice < layout_.moving_slices()) return trained_->import_slice(part, slice, plain);
  if (part == Part::average) return;  // it is the weights
  check(part == Part::weights, "frozen layers have weights only");
  frozen_->import_slice(part, slice - layout_.moving_slices(), plain);
}

void FrozenParameters::export_slice(Part part, std::size_t slice, std::span<float> plain) const {
  if (slice < layout_.moving_slices()) return trained_->export_slice(part, slice, plain);
  check(part == Part::weights || part == Part::average, "frozen layers have weights only");
  frozen_->export_slice(Part::weights, slice - layout_.moving_slices(), plain);
}

std::uint32_t FrozenParameters::hash() const {
  const std::array<std::uint32_t, 2> both{frozen_->hash(), trained_->hash()};
  return crc32c(both.data(), sizeof(both));
}

}  // namespace lockstep::backend
