#pragma once

#include "lockstep/backend/vectors.hpp"
#include "ports/cpu/team.hpp"

namespace lockstep::cpu {

/// By all lanes, block by block, so that values of other formats are floats in a core's cache only.
class CpuVectors final : public backend::Vectors {
 public:
  explicit CpuVectors(Team& team) : team_(team) {}
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
  Team& team_;
};

}  // namespace lockstep::cpu
