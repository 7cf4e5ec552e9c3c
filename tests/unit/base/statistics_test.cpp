#include "lockstep/base/statistics.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

using namespace lockstep;

TEST_CASE("one value that is not finite is found among many", "[statistics]") {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::signaling_NaN()})
    for (const std::size_t size : {1, 2, 7, 64, 1001}) {
      std::vector<float> values(size, -std::numeric_limits<float>::max());
      CHECK(all_finite(values));
      for (std::size_t at = 0; at < size; ++at) {
        values[at] = bad;
        if (all_finite(values)) FAIL_CHECK("of " << size << " values, number " << at);
        values[at] = std::numeric_limits<float>::denorm_min();
      }
    }
  CHECK(all_finite({}));
}

TEST_CASE("a median is the middle value in any order; two middles are told apart", "[statistics]") {
  CHECK(lower_median({3}) == 3);
  CHECK(upper_median({3}) == 3);
  CHECK(lower_median({5, 1, 3}) == 3);
  CHECK(upper_median({5, 1, 3}) == 3);
  CHECK(lower_median({4, 1, 3, 2}) == 2);
  CHECK(upper_median({4, 1, 3, 2}) == 3);
  CHECK(lower_median({7, 7, 7, -1e300}) == 7);
}

TEST_CASE("half of the values are no greater than the median and half no less", "[statistics]") {
  for (std::size_t count = 1; count <= 40; ++count) {
    std::vector<double> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i * 7919 % 31));
    for (const double middle : {lower_median(values), upper_median(values)}) {
      std::size_t below = 0, above = 0;
      for (const double value : values) {
        below += value < middle;
        above += value > middle;
      }
      CHECK(2 * below <= count);
      CHECK(2 * above <= count);
    }
  }
}

TEST_CASE("without values the median is 0", "[statistics]") {
  CHECK(lower_median({}) == 0);
  CHECK(upper_median({}) == 0);
}
