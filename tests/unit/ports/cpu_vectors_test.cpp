// Vectors on the CPU: the laws of every backend's, with each number of lanes and instruction set.
#include <catch2/catch.hpp>

#include "lockstep/backend/backend.hpp"
#include "ports/cpu/kernels/kernel_sets.hpp"
#include "tests/support/laws/matrix_laws.hpp"
#include "tests/support/laws/vector_laws.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("vectors are cast, added and scaled alike with any number of lanes", "[vectors]") {
  for (const std::size_t lanes : {1, 3}) {
    INFO(lanes << " lanes");
    const auto backend = backend::make_cpu_backend({std::vector<std::vector<int>>(lanes), 1 << 20});
    CHECK(fault_of_casts(backend->vectors()) == "");
    CHECK(fault_of_arithmetic(backend->vectors()) == "");
    CHECK(fault_of_vectors(backend->vectors()) == "");
  }
}

TEST_CASE("products of matrices and orthogonal vectors are right with any number of lanes",
          "[vectors]") {
  for (const std::size_t lanes : {1, 3}) {
    INFO(lanes << " lanes");
    const auto backend = backend::make_cpu_backend({std::vector<std::vector<int>>(lanes), 1 << 20});
    CHECK(fault_of_products(backend->vectors()) == "");
    CHECK(fault_of_orthogonal_vectors(backend->vectors()) == "");
  }
}

TEST_CASE("the casts of all instruction sets give the same bits", "[vectors]") {
  std::vector<float> values(1000), widened(1000), wanted(1000);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        std::ldexp(static_cast<float>(i * 7919 % 2003) - 1000, static_cast<int>(i % 60) - 40);
  std::vector<std::uint16_t> half(1000), half_wanted(1000);
  std::vector<std::int8_t> small(1000), small_wanted(1000);
  const cpu::VectorKernels& plain = cpu::plain_set.vectors;
  for (const cpu::KernelSet& set : cpu::kernel_sets()) {
    const cpu::VectorKernels* other = &set.vectors;
    for (const bool brain : {false, true}) {
      (brain ? plain.round_bf16 : plain.round_f16)(values.data(), 1000, half_wanted.data());
      (brain ? other->round_bf16 : other->round_f16)(values.data(), 1000, half.data());
      CHECK(half == half_wanted);
      (brain ? plain.widen_bf16 : plain.widen_f16)(half.data(), 1000, wanted.data());
      (brain ? other->widen_bf16 : other->widen_f16)(half.data(), 1000, widened.data());
      CHECK(widened == wanted);
    }
    plain.encode_i8(values.data(), 0.5f, 1000, small_wanted.data());
    other->encode_i8(values.data(), 0.5f, 1000, small.data());
    CHECK(small == small_wanted);
    CHECK(other->largest(values.data(), 999) == plain.largest(values.data(), 999));
  }
}

TEST_CASE("the clock backend's vectors have memory and values of zero", "[vectors]") {
  backend::Pace pace;
  const auto backend = backend::make_clock_backend(pace);
  backend::Vectors& vectors = backend->vectors();
  const std::size_t bytes = std::size_t{64} << 20;
  const backend::DeviceMemory memory = vectors.allocate(bytes, "a test");
  auto* floats = reinterpret_cast<float*>(memory.get());
  floats[bytes / sizeof(float) - 1] = 0;
  const backend::Vector all = backend::vector(floats, bytes / sizeof(float));
  vectors.scale(2, all);
  float found = 1;
  vectors.largest(all, &found);
  CHECK(found == 0);
  CHECK_THROWS_WITH(vectors.cast(all, backend::vector(floats, 3)),
                    Catch::Contains("cast: ") && Catch::Contains("meet 3"));
}
