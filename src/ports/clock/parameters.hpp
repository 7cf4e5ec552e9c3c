#pragma once

#include <cstddef>

#include "lockstep/backend/parameters.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::clock {

/// Memory that looks as large as asked for and takes at most two megabytes: one block of it appears
/// again and again. Good only for values that mean nothing.
class FoldedMemory {
 public:
  FoldedMemory() = default;
  explicit FoldedMemory(std::size_t bytes);  ///< throws std::bad_alloc
  FoldedMemory(FoldedMemory&& other) noexcept;
  FoldedMemory& operator=(FoldedMemory&& other) noexcept;
  ~FoldedMemory();
  float* data() const { return static_cast<float*>(base_); }

 private:
  void* base_ = nullptr;
  std::size_t mapped_ = 0;
};

/// An arena whose values are all zero. What is imported is forgotten.
class ClockParameters final : public backend::Parameters {
 public:
  /// `update_ms`: of all learned slices.
  ClockParameters(const nn::Network& network, double update_ms);
  const nn::ArenaLayout& arena() const override { return layout_; }
  float* device_pointer(backend::Part part) override;
  void import_own(backend::Part part, std::size_t slice, std::span<const float> plain) override;
  void export_own(backend::Part part, std::size_t slice, std::span<float> plain) const override;
  void start_average() override { has_average_ = true; }
  bool has_average() const override { return has_average_; }
  void start_second_moments() override { has_second_moments_ = true; }
  bool has_second_moments() const override { return has_second_moments_; }
  std::uint32_t own_hash() const override { return 0; }

  double update_ms(std::size_t first, std::size_t last) const;  ///< of slices [first, last)

 private:
  nn::ArenaLayout layout_;
  double update_ms_;
  std::size_t learned_ = 0;  ///< floats of the slices that are updated
  FoldedMemory memory_[5];   // by part
  bool has_average_ = false, has_second_moments_ = false;
};

}  // namespace lockstep::clock
