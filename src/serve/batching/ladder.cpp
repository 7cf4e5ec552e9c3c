#include "serve/batching/ladder.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"

namespace lockstep::serve {
namespace {

constexpr std::size_t trial_images = 2;

std::vector<std::uint8_t> noise(std::size_t bytes, std::uint64_t image) {
  std::vector<std::uint8_t> pixels(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    pixels[i] = static_cast<std::uint8_t>(draw4(1, image, i, Draw::synth).word[0]);
  return pixels;
}

/// Of bits, so that equal values that are not numbers agree.
bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace

Ladder::Ladder(backend::Backend& backend, const nn::Network& network,
               const backend::ProgramSpec& program, backend::Parameters& parameters)
    : row_bytes_(network.input.count()),
      inference_(backend, network, program, parameters),
      rows_(backend.device().allocate_pinned(program.batch * row_bytes_)),
      expected_(trial_images) {
  std::memset(rows_.data(), 0, rows_.size());
  for (std::size_t image = 0; image < trial_images; ++image)
    images_.push_back(noise(row_bytes_, image));
  for (std::size_t size = program.batch; size > 0; size /= 2)
    for (std::size_t pattern = 0; pattern <= trial_images; ++pattern)
      trials_.push_back({size, pattern});
}

bool Ladder::prepare() {
  if (trials_.empty()) return true;
  const Trial trial = trials_.front();
  trials_.pop_front();
  if (!passes(trial)) {
    std::erase_if(trials_, [&](const Trial& other) { return other.size == trial.size; });
    if (sizes_.empty()) expected_.assign(trial_images, {});  // the next size decides
  } else if (trial.pattern == trial_images) {
    sizes_.insert(sizes_.begin(), trial.size);
  }
  return trials_.empty();
}

bool Ladder::passes(const Trial& trial) {
  const auto image_at = [&](std::size_t row) {
    return trial.pattern < trial_images ? trial.pattern : row % trial_images;
  };
  for (std::size_t row = 0; row < trial.size; ++row) put(row, images_[image_at(row)]);
  compute(trial.size, trial.size);
  for (std::size_t row = 0; row < trial.size; ++row) {
    std::vector<float>& expected = expected_[image_at(row)];
    const std::span<const float> got = logits(row);
    if (expected.empty()) expected.assign(got.begin(), got.end());
    if (!same_bits(got, expected)) return false;
  }
  return true;
}

void Ladder::put(std::size_t row, std::span<const std::uint8_t> pixels) {
  check(pixels.size() == row_bytes_ && (row + 1) * row_bytes_ <= rows_.size(), "a row of a batch");
  std::memcpy(rows_.data() + row * row_bytes_, pixels.data(), row_bytes_);
}

std::size_t Ladder::run(std::size_t rows) {
  const auto size = std::lower_bound(sizes_.begin(), sizes_.end(), rows);
  check(size != sizes_.end(), "a batch that is not larger than the largest");
  compute(*size, rows);
  return *size;
}

void Ladder::compute(std::size_t size, std::size_t rows) {
  inference_.run({.images = reinterpret_cast<const std::uint8_t*>(rows_.data()),
                  .rows = rows,
                  .capacity = size});
  inference_.logits(0);  // waits for the device, and keeps all
}

}  // namespace lockstep::serve
