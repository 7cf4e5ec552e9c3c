#pragma once

#include "lockstep/backend/vectors.hpp"

namespace lockstep::clock {

/// Memory of zeros, on which nothing is computed. It takes no time: a pace has no line for it.
class ClockVectors final : public backend::Vectors {
 public:
  backend::DeviceMemory allocate(std::size_t bytes, const std::string& what) override;
  void read(const void* from, std::span<std::byte> to) override;
  void write(std::span<const std::byte> from, void* to) override;
  void cast(const backend::Vector& from, const backend::Vector& to) override;
  void add(float factor, const backend::Vector& from, const backend::Vector& to) override;
  void scale(float factor, const backend::Vector& values) override;
  void largest(const backend::Vector& values, float* found) override;
  void select(const backend::Vector& values, float share, const float* bound) override;
};

}  // namespace lockstep::clock
