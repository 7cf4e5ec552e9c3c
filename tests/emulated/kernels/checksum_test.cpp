// The checksum of weights, which a GPU computes in blocks.
#include "ports/cuda/kernels/checksum.hpp"

#include <catch2/catch.hpp>
#include <cstring>

#include "lockstep/base/crc32c.hpp"
#include "ports/cuda/parameters.hpp"
#include "tests/emulated/fixture.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("the sums of blocks give CRC-32C for any number of words", "[kernel][checksum]") {
  for (const std::size_t count : {1ul, 255ul, 4096ul, 4097ul, 9000ul}) {
    std::vector<std::uint32_t> words(count);
    for (std::size_t i = 0; i < count; ++i)
      words[i] = static_cast<std::uint32_t>(i * 2654435761u ^ i >> 3);
    const std::size_t blocks = (count + cuda::crc_block_words - 1) / cuda::crc_block_words;
    const Outputs got = in_every_order([&](cudaStream_t stream) {
      std::vector<std::uint32_t> sums(blocks, 7);
      cuda::crc_sums(words.data(), count, sums.data(), stream);
      return Outputs{{sums.begin(), sums.end()}};
    });
    std::uint32_t sum = 0;
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t in_it =
          b == 0 ? count - (blocks - 1) * cuda::crc_block_words : cuda::crc_block_words;
      sum = cuda::crc_product(cuda::crc_shift(in_it), sum) ^ static_cast<std::uint32_t>(got[0][b]);
    }
    INFO(count << " words");
    CHECK(~(cuda::crc_product(cuda::crc_shift(1), sum) ^
            cuda::crc_product(cuda::crc_shift(count), ~0u)) ==
          crc32c(words.data(), count * sizeof(std::uint32_t)));
  }
}

TEST_CASE("the hash of a GPU's parameters is the CRC-32C of its memory", "[checksum]") {
  const Case c(bottlenecks(), 2, 5);
  const Compiled compiled(c, 2, make_cuda_backend(0), Precision::fp16);
  auto& parameters = dynamic_cast<cuda::CudaParameters&>(*compiled.parameters);
  const auto crc_of = [&](std::vector<Part> parts) {
    std::uint32_t crc = 0;  // emulated memory is the host's
    for (const Part part : parts)
      crc = crc32c(parameters.at(part, 0), parameters.layout().size * sizeof(float), crc);
    return crc;
  };
  CHECK(parameters.hash() == crc_of({Part::weights, Part::momentum}));
  parameters.start_average();
  CHECK(parameters.hash() == crc_of({Part::weights, Part::momentum, Part::average}));
  const std::uint32_t before = parameters.hash();
  parameters.at(Part::momentum, parameters.layout().size / 2)[0] += 1;
  CHECK(parameters.hash() != before);
}
