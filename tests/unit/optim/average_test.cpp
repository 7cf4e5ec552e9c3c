#include "lockstep/optim/average.hpp"

#include <catch2/catch.hpp>

using namespace lockstep::optim;

TEST_CASE("a young average forgets the initial weights soon, an old one fades by its decay",
          "[average]") {
  const AverageSpec spec{.decay = 0.99};
  CHECK(average_share(spec, 0) == Approx(0.9));       // decay 1 / 10
  CHECK(average_share(spec, 10) == Approx(9. / 20));  // 11 / 20
  CHECK(average_share(spec, 889) == Approx(9. / 899));
  CHECK(average_share(spec, 890) == Approx(0.01));
  CHECK(average_share(spec, 1'000'000'000) == 0.01f);
  CHECK(average_share({.decay = 0.999999}, 1'000'000'000) == Approx(1e-6).epsilon(1e-6));
  CHECK(spec.kept());
  CHECK_FALSE(AverageSpec{}.kept());
}
