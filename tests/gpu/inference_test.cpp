// A network that only runs forward, on the GPU.
#include <catch2/catch.hpp>
#include <cmath>

#include "lockstep/backend/inference/inference.hpp"
#include "tests/gpu/fixture.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("a batch without targets gives the logits of one with targets, every precision",
          "[gpu]") {
  if (!gpu()) return;
  constexpr std::size_t rows = 5;
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    INFO(to_string(precision));
    const Case c(bottlenecks(), rows, 5);
    const Compiled compiled(c, rows, gpu(), precision);
    Inference inference(*compiled.backend, c.network, compiled.program->spec(),
                        *compiled.parameters);
    const std::vector<std::uint8_t> bytes(c.images.size(), 99);
    data::Batch batch;
    batch.images = bytes.data();
    batch.rows = batch.capacity = rows;
    std::vector<float> logits[2];
    for (const bool labelled : {false, true}) {
      batch.targets = labelled ? c.targets.data() : nullptr;
      inference.run(batch);
      for (std::size_t row = 0; row < rows; ++row)
        for (const float logit : inference.logits(row)) logits[labelled].push_back(logit);
      CHECK(inference.take_metrics().rows == (labelled ? rows : 0));
    }
    CHECK(logits[0] == logits[1]);
    CHECK_FALSE(std::isnan(logits[0].front()));
  }
}
