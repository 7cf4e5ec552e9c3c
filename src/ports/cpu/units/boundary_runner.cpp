#include "ports/cpu/units/boundary_runner.hpp"

#include <cstring>

#include "lockstep/base/error.hpp"

namespace lockstep::cpu {

void BoundaryRunner::plan() {
  image_bytes_ = c.network.nodes[unit.node].shape.count() * bytes_of(c.storage);
  check(gradients() <= 2, unit.name + ": the CPU backend sums at most two gradients");
  for (std::size_t slot = 0; slot < c.spec.slots; ++slot)
    memory_.emplace_back(value_bytes() * (1 + gradients()));
}

std::size_t BoundaryRunner::bytes() const {
  return memory_.size() * value_bytes() * (1 + gradients());
}

backend::Boundary BoundaryRunner::boundary() {
  std::byte* data = memory_[c.slot].data();
  return {{data, value_bytes()}, {data + value_bytes(), value_bytes() * gradients()}};
}

std::byte* BoundaryRunner::value_at(const Chunk& chunk) const {
  return memory_[c.slot].data() + chunk.before(image_bytes_);
}

std::byte* BoundaryRunner::gradient_at(const Chunk& chunk, std::size_t which) const {
  return value_at(chunk) + (1 + which) * value_bytes();
}

void ReceiveRunner::backward(const Chunk& chunk) {
  for (std::size_t i = 0; i < gradients(); ++i)
    std::memcpy(gradient_at(chunk, i), c.runners[unit.readers[i]]->input_gradient(chunk),
                chunk.share(image_bytes_));
}

void SendRunner::forward(const Chunk& chunk) {
  std::memcpy(value_at(chunk), c.runners[*unit.input]->value(chunk), chunk.share(image_bytes_));
}

}  // namespace lockstep::cpu
