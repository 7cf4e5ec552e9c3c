#include "tests/emulated/fixture.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "lockstep/base/rng.hpp"
#include "tests/emulated/cuda/gpu.hpp"

namespace lockstep::test {

using cuda::Storage;

Values::Values(Storage storage, std::size_t count)
    : storage_(storage),
      count_(count),
      memory_(count * cuda::bytes_of(storage) + 2 * margin, std::byte{0xff}) {}

Values::Values(Storage storage, std::span<const double> values) : Values(storage, values.size()) {
  for (std::size_t i = 0; i < count_; ++i) {
    const auto value = static_cast<float>(values[i]);
    if (storage == Storage::fp32) static_cast<float*>(data())[i] = value;
    if (storage == Storage::bf16)
      static_cast<__nv_bfloat16*>(data())[i] = __float2bfloat16_rn(value);
    if (storage == Storage::fp16) static_cast<__half*>(data())[i] = __float2half_rn(value);
  }
}

Values::~Values() {
  const auto untouched = [](std::byte byte) { return byte == std::byte{0xff}; };
  CHECK(std::all_of(memory_.begin(), memory_.begin() + margin, untouched));
  CHECK(std::all_of(memory_.end() - margin, memory_.end(), untouched));
}

std::vector<double> Values::read() const {
  std::vector<double> values(count_);
  for (std::size_t i = 0; i < count_; ++i) switch (storage_) {
      case Storage::fp32:
        values[i] = static_cast<double>(static_cast<const float*>(data())[i]);
        break;
      case Storage::bf16:
        values[i] =
            static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(data())[i]));
        break;
      case Storage::fp16:
        values[i] = static_cast<double>(__half2float(static_cast<const __half*>(data())[i]));
        break;
    }
  return values;
}

std::vector<double> rounded(Storage storage, std::span<const double> values) {
  return Values(storage, values).read();
}

double precision_of(Storage storage) {
  return storage == Storage::fp32 ? 0x1p-24 : storage == Storage::bf16 ? 0x1p-8 : 0x1p-11;
}

std::string to_string(Storage storage) {
  return storage == Storage::fp32 ? "fp32" : storage == Storage::bf16 ? "bf16" : "fp16";
}

std::vector<double> some_values(std::size_t count, std::uint64_t seed) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = philox(seed, i, 0).word[0] * 0x1p-31 - 1;
  return values;
}

Outputs in_every_order(const std::function<Outputs(cudaStream_t)>& kernel) {
  const cuda::CudaStream stream;
  Outputs first;
  for (const auto order :
       {emulated::Order::forward, emulated::Order::reverse, emulated::Order::shuffled}) {
    emulated::conditions().order = order;
    const Outputs wrote = kernel(stream.get());
    if (first.empty()) first = wrote;
    for (std::size_t i = 0; i < wrote.size(); ++i) {
      REQUIRE(wrote[i].size() == first[i].size());
      INFO("output " << i << " in another order of the threads");
      CHECK(std::memcmp(wrote[i].data(), first[i].data(), wrote[i].size() * sizeof(double)) == 0);
    }
  }
  emulated::conditions().order = emulated::Order::forward;
  return first;
}

void check_near(std::span<const double> got, std::span<const double> want, double tolerance,
                const std::string& what) {
  REQUIRE(got.size() == want.size());
  double size = 0;
  for (const double value : want)
    if (std::isfinite(value)) size = std::max(size, std::abs(value));
  std::size_t shown = 0;
  for (std::size_t i = 0; i < want.size() && shown < 3; ++i) {
    const bool near = std::isnan(want[i])
                          ? std::isnan(got[i])
                          : got[i] == want[i] || std::abs(got[i] - want[i]) <= tolerance * size;
    if (near) continue;
    ++shown;
    INFO(what << "[" << i << "] is " << got[i] << ", wanted " << want[i]);
    CHECK(near);
  }
}

}  // namespace lockstep::test
