#include "lockstep/base/text/numbers.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/base/share.hpp"
#include "lockstep/base/text/words.hpp"

using namespace lockstep;
using Catch::Contains;

TEST_CASE("a count is all of its text, in range", "[count]") {
  CHECK(parse_count("0", "x") == 0);
  CHECK(parse_count("010", "x") == 10);
  CHECK(parse_count("18446744073709551615", "x") == 18446744073709551615ull);
  CHECK(parse_count("7", "x", 7, 7) == 7);
}

TEST_CASE("a text that is not a count is an error that gives name and range", "[count]") {
  for (const char* text :
       {"", "-1", "+1", " 1", "1 ", "1.0", "0x1", "1e3", "ten", "18446744073709551616"})
    CHECK_THROWS_WITH(parse_count(text, "--rows"), Contains("--rows: '" + std::string(text) +
                                                            "' is not a whole number from 0 on"));
  CHECK_THROWS_WITH(parse_count("0", "--rows", 1, 5), Contains("from 1 to 5"));
  CHECK_THROWS_WITH(parse_count("6", "--rows", 1, 5), Contains("'6'"));
}

TEST_CASE("sizes are read as people write them", "[count]") {
  for (const auto& [text, bytes] :
       std::initializer_list<std::pair<const char*, std::uint64_t>>{{"0", 0},
                                                                    {"300000000", 300'000'000},
                                                                    {"12B", 12},
                                                                    {"4GB", 4'000'000'000},
                                                                    {"4 GB", 4'000'000'000},
                                                                    {"4G", 4'000'000'000},
                                                                    {"500MiB", 500ull << 20},
                                                                    {"1.5TiB", 3ull << 39},
                                                                    {"10kB", 10'000},
                                                                    {"10KB", 10'000},
                                                                    {"10KiB", 10'240}})
    CHECK(parse_bytes(text, "x") == bytes);
  for (const char* text : {"", "GB", "-1GB", "4gB", "4GBB", "4 apples", "1e9", "4Gb", "nan", "4iB",
                           "99999999TB", "4  GB", "4kM"})
    CHECK_THROWS_WITH(parse_bytes(text, "--x"),
                      Contains("--x: '" + std::string(text) + "' is not a size"));
}

TEST_CASE("a whole number is all of its text, and fits its type", "[count]") {
  CHECK(whole_number<int>("0") == 0);
  CHECK(whole_number<int>("007") == 7);
  CHECK(whole_number<int>("2147483647") == std::numeric_limits<int>::max());
  CHECK(whole_number<long>("9223372036854775807") == std::numeric_limits<long>::max());
  CHECK(whole_number<std::uint64_t>("18446744073709551615") ==
        std::numeric_limits<std::uint64_t>::max());
  CHECK_FALSE(whole_number<int>("2147483648"));
  CHECK_FALSE(whole_number<long>("9223372036854775808"));
  CHECK_FALSE(whole_number<std::uint64_t>("18446744073709551616"));
}

TEST_CASE("signs, blanks, fractions and other words are not whole numbers", "[count]") {
  for (const char* text :
       {"", "-", "-0", "-1", "+1", " 1", "1 ", "1\n", "1.0", "0x1", "1e3", "ten"}) {
    CAPTURE(text);
    CHECK_FALSE(whole_number<int>(text));
    CHECK_FALSE(whole_number<long>(text));
    CHECK_FALSE(whole_number<std::uint64_t>(text));
  }
}

TEST_CASE("one thing is not many things", "[count]") {
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(0, "rank") == "0 ranks");
  CHECK(counted(1, "class") == "1 class");
  CHECK(counted(12, "class") == "12 classes");
  CHECK(counted(2, "micro-batch") == "2 micro-batches");
}

TEST_CASE("the fewest parts are as few as have no larger one", "[numbers]") {
  for (std::size_t rows = 0; rows <= 60; ++rows)
    for (std::size_t parts = 1; parts <= 70; ++parts) {
      std::size_t fewest = rows == 0 ? 0 : 1;
      while (fewest > 0 && even_share(rows, fewest, 0) > even_share(rows, parts, 0)) ++fewest;
      INFO(rows << " rows in " << parts << " parts");
      REQUIRE(fewest_parts(rows, parts) == fewest);
    }
}
