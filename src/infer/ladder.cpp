#include "lockstep/infer/ladder.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/data/element_bytes.hpp"

namespace lockstep::infer {
namespace {

constexpr std::size_t trial_images = 8;

/// Noise of all values, of middle ones, slopes, and squares of noise: a network that says the same
/// of all images of one kind shows no difference there.
std::vector<std::uint8_t> trial_image(const nn::Shape& shape, std::size_t image) {
  constexpr std::size_t square = 4;
  const auto noise = [&](std::size_t at) { return draw4(1, image, at, Draw::synth).word[0] % 256; };
  std::vector<std::uint8_t> pixels;
  for (std::size_t y = 0; y < shape.height; ++y)
    for (std::size_t x = 0; x < shape.width; ++x)
      for (std::size_t c = 0; c < shape.channels; ++c) {
        const std::size_t tile = (y / square * shape.width + x / square) * shape.channels + c;
        const std::size_t kinds[] = {noise(pixels.size()), 96 + noise(pixels.size()) / 4,
                                     (noise(c) + y * 128 / shape.height + x * 64 / shape.width) / 2,
                                     noise(tile)};
        pixels.push_back(static_cast<std::uint8_t>(kinds[image % std::size(kinds)]));
      }
  return pixels;
}

/// The same image in the elements that the network takes: middle grey is a channel's mean, and half
/// of all levels its deviation.
std::vector<std::uint8_t> as_elements(const std::vector<std::uint8_t>& pixels,
                                      const nn::Shape& shape, const backend::ProgramSpec& program) {
  if (data::enter_as_bytes(program.element, program.shaping)) return pixels;
  std::vector<std::uint8_t> row;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t c = i % shape.channels;
    const float level = (static_cast<float>(pixels[i]) - 128) / 64;
    data::append_element(
        program.element,
        data::unshaped(program.shaping, c, program.mean[c] + program.stddev[c] * level), row);
  }
  return row;
}

/// Of bits, so that equal values that are not numbers agree.
bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

const std::uint8_t* pixels_in(const device::PinnedBuffer& buffer) {
  return reinterpret_cast<const std::uint8_t*>(buffer.data());
}

}  // namespace

Ladder::Ladder(backend::Backend& backend, const nn::Network& network,
               const backend::ProgramSpec& program, backend::Parameters& parameters)
    : row_bytes_(backend::image_bytes(network, program)),
      classes_(network.classes),
      inference_(backend, network, program, parameters),
      padded_(backend.device().allocate_pinned(program.batch * row_bytes_)),
      expected_(trial_images) {
  std::memset(padded_.data(), 0, padded_.size());
  for (std::size_t image = 0; image < trial_images; ++image)
    images_.push_back(as_elements(trial_image(network.input, image), network.input, program));
  for (std::size_t size = program.batch; size > 0; size /= 2) {
    trials_.push_back({.size = size, .image = 0, .turns = false});
    for (std::size_t image = 0; image < trial_images; image += size)
      trials_.push_back({.size = size, .image = image, .turns = true});
  }
}

bool Ladder::prepare() {
  if (trials_.empty()) return true;
  const Trial trial = trials_.front();
  trials_.pop_front();
  if (!passes(trial)) {
    std::erase_if(trials_, [&](const Trial& other) { return other.size == trial.size; });
    if (sizes_.empty()) expected_.assign(trial_images, {});  // the next size decides
  } else if (trials_.empty() || trials_.front().size != trial.size) {
    sizes_.insert(sizes_.begin(), trial.size);
  }
  if (!trials_.empty()) return false;
  if (sizes_.empty())
    throw Error("one image alone has other outputs the second time: this device computes wrongly");
  plan_cuts();
  return true;
}

bool Ladder::passes(const Trial& trial) {
  const auto image_at = [&](std::size_t row) {
    return trial.turns ? (trial.image + row) % trial_images : trial.image;
  };
  for (std::size_t row = 0; row < trial.size; ++row)
    std::memcpy(padded_.data() + row * row_bytes_, images_[image_at(row)].data(), row_bytes_);
  const double began_s = now_s();
  compute(pixels_in(padded_), trial.size, trial.size, trial.size);
  const double took_s = now_s() - began_s;
  if (trial.turns) {  // the first one may also have compiled
    double& least_s = seconds_.try_emplace(trial.size, took_s).first->second;
    least_s = std::min(least_s, took_s);
  }
  for (std::size_t row = 0; row < trial.size; ++row) {
    std::vector<float>& expected = expected_[image_at(row)];
    const std::span<const float> got = inference_.logits(row);
    if (expected.empty()) expected.assign(got.begin(), got.end());
    if (!same_bits(got, expected)) return false;
  }
  return true;
}

/// The least time for each number of rows: a size that holds them all, or a smaller one and then
/// the least time for the rest.
void Ladder::plan_cuts() {
  std::vector<double> least_s(largest() + 1, std::numeric_limits<double>::infinity());
  next_size_.assign(largest() + 1, largest());
  least_s[0] = 0;
  for (std::size_t rows = 1; rows <= largest(); ++rows)
    for (const std::size_t size : sizes_) {
      const double takes_s = seconds_.at(size) + least_s[rows - std::min(rows, size)];
      if (takes_s >= least_s[rows]) continue;
      least_s[rows] = takes_s;
      next_size_[rows] = size;
    }
}

void Ladder::run(const data::Batch& batch) {
  check(!next_size_.empty(), "a ladder that is prepared");
  logits_.resize(batch.rows * classes_);
  for (std::size_t first = 0; first < batch.rows;) {
    const std::size_t left = batch.rows - first;
    const std::size_t size = next_size_[std::min(left, largest())], rows = std::min(left, size);
    compute(batch.images + first * row_bytes_, rows, batch.capacity - first, size);
    for (std::size_t row = 0; row < rows; ++row)
      std::ranges::copy(inference_.logits(row), logits_.data() + (first + row) * classes_);
    first += rows;
  }
  for (std::size_t row = 0; batch.targets != nullptr && row < batch.rows; ++row)
    backend::count_row(metrics_, logits(row), batch.targets[row]);
}

backend::Metrics Ladder::take_metrics() { return std::exchange(metrics_, {}); }

std::span<const float> Ladder::logits(std::size_t row) {
  return std::span(logits_).subspan(row * classes_, classes_);
}

void Ladder::compute(const std::uint8_t* images, std::size_t rows, std::size_t readable,
                     std::size_t size) {
  if (readable < size) {
    std::memcpy(padded_.data(), images, rows * row_bytes_);
    images = pixels_in(padded_);
  }
  inference_.run({.images = images, .rows = rows, .capacity = size});
  inference_.logits(0);  // waits for the device, and keeps all
}

}  // namespace lockstep::infer
