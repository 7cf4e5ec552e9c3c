#pragma once

#include <cstddef>
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
  std::byte* value_at(const Chunk& chunk) const;
  std::byte* gradient_at(const Chunk& chunk, std::size_t which) const;

  std::size_t image_bytes_ = 0;

 private:
  std::size_t value_bytes() const { return image_bytes_ * c.spec.batch; }
  std::vector<HostMemory> memory_;  // by slot: the values, then the gradients
};

class ReceiveRunner final : public BoundaryRunner {
 public:
  using BoundaryRunner::BoundaryRunner;
  void forward(const Chunk&) override {}
  void backward(const Chunk& chunk) override;
  const std::byte* value(const Chunk& chunk) override { return value_at(chunk); }
  const std::byte* input_gradient(const Chunk&) override { return nullptr; }

 private:
  std::size_t gradients() const override {
    return nn::wants_gradient(c.network.nodes[unit.node]) ? unit.readers.size() : 0;
  }
};

class SendRunner final : public BoundaryRunner {
 public:
  using BoundaryRunner::BoundaryRunner;
  void forward(const Chunk& chunk) override;
  const std::byte* value(const Chunk& chunk) override { return value_at(chunk); }
  const std::byte* input_gradient(const Chunk& chunk) override { return gradient_at(chunk, 0); }
  const std::byte* second_gradient(const Chunk& chunk) override {
    return gradients() > 1 ? gradient_at(chunk, 1) : nullptr;
  }

 private:
  std::size_t gradients() const override { return c.network.nodes[unit.node].gradients; }
};

}  // namespace lockstep::cpu
