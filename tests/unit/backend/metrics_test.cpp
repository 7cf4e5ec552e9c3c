#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "lockstep/backend/backend.hpp"

using namespace lockstep;

TEST_CASE("sums of rounded figures are the same in any order, and near the others", "[shards]") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> losses(0, 1e4);
  std::vector<backend::Metrics> parts(999);
  for (backend::Metrics& one : parts) {
    one.loss = losses(random);
    one.rows = 3;
    one.sums = {losses(random), 5, 0};
  }
  const auto sum = [&](bool rounded) {
    backend::Metrics all;
    for (const backend::Metrics& one : parts) all += rounded ? backend::in_any_order(one) : one;
    return all;
  };
  const backend::Metrics first = sum(true);
  for (int i = 0; i < 5; ++i) {
    std::shuffle(parts.begin(), parts.end(), random);
    CHECK(sum(true).loss == first.loss);
    CHECK(sum(true).sums == first.sums);
  }
  CHECK(first.rows == 2997);
  CHECK(first.sums[1] == 5 * 999);
  CHECK(first.loss == Approx(sum(false).loss).epsilon(1e-10));
  backend::Metrics diverged;
  diverged.loss = std::numeric_limits<double>::infinity();
  CHECK(backend::in_any_order(diverged).loss == diverged.loss);
}

TEST_CASE("a backend's description without its threads keeps all else", "[shards]") {
  CHECK(backend::without_threads("cpu: oneDNN 2.6.3 (avx2), avx2, 2 threads, Winograd true") ==
        "cpu: oneDNN 2.6.3 (avx2), avx2, Winograd true");
  CHECK(backend::without_threads("cpu: oneDNN 2.6.3 (avx2), avx2, 1 thread") ==
        "cpu: oneDNN 2.6.3 (avx2), avx2");
  CHECK(backend::without_threads("cuda: NVIDIA H200") == "cuda: NVIDIA H200");
}
