#pragma once

#include "lockstep/backend/vectors.hpp"
#include "ports/cuda/device.hpp"

namespace lockstep::cuda {

/// One thread for each value, one block of threads for each block of values: all work is as fast
/// as the device's memory.
class CudaVectors final : public backend::Vectors {
 public:
  explicit CudaVectors(CudaDevice& device) : device_(device) {}
  backend::DeviceMemory allocate(std::size_t bytes, const std::string& what) override;
  void read(const void* from, std::span<std::byte> to) override;
  void write(std::span<const std::byte> from, void* to) override;
  void cast(const backend::Vector& from, const backend::Vector& to) override;
  void add(float factor, const backend::Vector& from, const backend::Vector& to) override;
  void scale(float factor, const backend::Vector& values) override;
  void largest(const backend::Vector& values, float* found) override;
  void select(const backend::Vector& values, float share, const float* bound) override;

 private:
  CudaDevice& device_;
};

}  // namespace lockstep::cuda
