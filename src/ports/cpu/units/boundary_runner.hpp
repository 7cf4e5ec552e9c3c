#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "ports/cpu/runner.hpp"

namespace lockstep::cpu {

/// The start or the end of a stage. What passes it is in memory that each slot has for itself; the
/// caller carries it from one stage to the other.
class BoundaryRunner : public Runner {
 public:
  BoundaryRunner(Context& context, std::size_t number) : Runner(context, number) {}
  void plan() override;
  backend::Boundary boundary();
  std::size_t bytes() const;  ///< of all slots

 protected:
  virtual std::size_t gradients() const = 0;  ///< how many pass it
  std::byte* value_at(const nn::LineRange& lines) const;
  std::byte* gradient_at(const Chunk& chunk, std::size_t which) const;

 private:
  std::size_t value_bytes() const { return passed_.bytes() * c.spec.batch; }
  Map passed_;                      // with a tile's own lines
  std::vector<HostMemory> memory_;  // by slot: the values, then the gradients
};

/// A tile keeps what it receives together with what other tiles have received.
class ReceiveRunner final : public BoundaryRunner {
 public:
  using BoundaryRunner::BoundaryRunner;
  void plan() override;
  void plan_messages() override;
  void forward(const Chunk& chunk) override;
  void backward(const Chunk& chunk) override;
  using Runner::value;
  const std::byte* value(const Chunk&, const nn::LineRange& lines) override {
    return of_tiles_ ? c.at(*of_tiles_) + map.offset(lines) : value_at(lines);
  }
  const std::byte* input_gradient(const Chunk&) override { return nullptr; }

 private:
  std::size_t gradients() const override {
    return nn::wants_gradient(c.network.nodes[unit.node]) ? unit.readers.size() : 0;
  }
  std::optional<std::size_t> of_tiles_;  // a buffer
};

class SendRunner final : public BoundaryRunner {
 public:
  using BoundaryRunner::BoundaryRunner;
  void forward(const Chunk& chunk) override;
  using Runner::value;
  const std::byte* value(const Chunk&, const nn::LineRange& lines) override {
    return value_at(lines);
  }
  const std::byte* input_gradient(const Chunk& chunk) override { return gradient_at(chunk, 0); }
  const std::byte* second_gradient(const Chunk& chunk) override {
    return gradients() > 1 ? gradient_at(chunk, 1) : nullptr;
  }

 private:
  std::size_t gradients() const override { return c.network.nodes[unit.node].gradients; }
};

/// The network's input: rows in the loader's memory. They are normalised chunk by chunk where
/// a convolution reads them, in forward and again in backward, so that normalised images are never
/// stored.
class Image {
 public:
  explicit Image(Context& context);
  /// For the convolution `reader`.
  void plan(std::size_t region, std::size_t reader);
  void load(const std::uint8_t* images) { rows_[c.slot] = {images, nullptr}; }
  void load_normalised(const float* images) { rows_[c.slot] = {nullptr, images}; }
  /// [lines, width, channels] in the lane's scratch.
  const std::byte* value(const Chunk& chunk, const nn::LineRange& lines) const;
  /// Whole pixels, `count` values from `first` on in the batch.
  void values(std::size_t first, std::size_t count, std::byte* out) const;

 private:
  /// The same of values whose shape changes, through floats.
  void shaped_values(std::size_t first, std::size_t count, std::byte* out) const;

  Context& c;
  std::map<std::size_t, std::size_t> places_;  // in the scratch of each region that reads it
  std::vector<float> a_, b_;                   // one period of what kernels enter the values by
  struct LoadedRows {
    const std::uint8_t* bytes = nullptr;
    const float* floats = nullptr;
  };
  std::vector<LoadedRows> rows_;  // by slot
};

}  // namespace lockstep::cpu
