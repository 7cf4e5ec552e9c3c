#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ports/cuda/kernels/kernels.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::test {

/// Memory for a kernel: `count` values stored as `storage`, NaN until written, with a margin on
/// both sides that no kernel may touch.
class Values {
 public:
  Values(cuda::Storage storage, std::size_t count);
  Values(cuda::Storage storage, std::span<const double> values);
  ~Values();  ///< fails the test case when the margin was written to
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;

  void* data() { return memory_.data() + margin; }
  const void* data() const { return memory_.data() + margin; }
  float* floats() { return static_cast<float*>(data()); }
  std::vector<double> read() const;

 private:
  static constexpr std::size_t margin = 64;
  cuda::Storage storage_;
  std::size_t count_;
  std::vector<std::byte> memory_;
};

/// The values after rounding to a storage.
std::vector<double> rounded(cuda::Storage storage, std::span<const double> values);
/// Half of the relative distance between neighbouring values.
double precision_of(cuda::Storage storage);
constexpr cuda::Storage all_storages[] = {cuda::Storage::fp32, cuda::Storage::bf16,
                                          cuda::Storage::fp16};
std::string to_string(cuda::Storage storage);

/// Numbers in [-1, 1), a pure function of the seed.
std::vector<double> some_values(std::size_t count, std::uint64_t seed);

/// Runs `kernel` with threads and blocks in different orders. Checks that all runs write the same
/// bits, and returns those of the first.
using Outputs = std::vector<std::vector<double>>;
Outputs in_every_order(const std::function<Outputs(cudaStream_t)>& kernel);

/// Checks that |got - want| <= tolerance * (largest |want| of the array), value by value; a NaN
/// passes only where one is wanted.
void check_near(std::span<const double> got, std::span<const double> want, double tolerance,
                const std::string& what);

}  // namespace lockstep::test
