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
  void multiply(const backend::Matrix& matrix, const backend::Thin& columns,
                const backend::Thin& product) override;
  void multiply_transposed(const backend::Matrix& matrix, const backend::Thin& rows,
                           const backend::Thin& product) override;
  void add_product(float keep, float factor, const backend::Thin& rows,
                   const backend::Thin& columns, const backend::Matrix& to) override;
  void orthogonalise(const backend::Thin& vectors) override;

 private:
  CudaDevice& device_;
};

}  // namespace lockstep::cuda
