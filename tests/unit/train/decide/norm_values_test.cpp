#include "train/decide/decide.hpp"

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/nn/resnet.hpp"

using namespace lockstep;
using namespace lockstep::train;
using Catch::Matchers::Contains;

namespace {

/// Its last layers have images of side / 32 pixels.
nn::Network network_for(std::size_t side) {
  return nn::resnet({.model = "resnet18", .classes = 4, .height = side, .width = side});
}

struct Rows {
  std::uint64_t batch = 8, last = 0;  ///< 0: as any other
  int ranks = 1;
  std::size_t accumulate = 1, norm_ranks = 1;
};

/// The error of a training with such steps; empty if there is none.
std::string refusal(const nn::Network& network, const Rows& rows) {
  config::Config config;
  config.batch = rows.batch;
  config.accumulate = rows.accumulate;
  config.model_options.norm_ranks = rows.norm_ranks;
  const auto ranks = static_cast<std::size_t>(rows.ranks);
  const std::size_t of_a_rank = (rows.batch + ranks - 1) / ranks;
  try {
    require_norm_values(network,
                        {.full = rows.batch,
                         .last = rows.last > 0 ? rows.last : rows.batch,
                         .replicas = rows.ranks,
                         .most = (of_a_rank + rows.accumulate - 1) / rows.accumulate},
                        config);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a micro-batch of one row is an error where batch norms see one pixel of it",
          "[norm-values]") {
  const nn::Network small = network_for(32), larger = network_for(64);
  CHECK_THAT(refusal(small, {.batch = 1}), Contains("batch = 1 and accumulate = 1 on 1 rank") &&
                                               Contains("layer4.0.bn1") &&
                                               Contains("use --batch 2 or more"));
  CHECK_THAT(refusal(small, {.batch = 4, .accumulate = 4}), Contains("use --accumulate 2"));
  CHECK_THAT(refusal(small, {.batch = 2, .ranks = 2}),
             Contains("use --batch 4 or more, fewer ranks, or --model"));
  // One rank has three rows and the other two, in two micro-batches.
  CHECK_THAT(refusal(small, {.batch = 5, .ranks = 2, .accumulate = 2}),
             Contains("use --accumulate 1"));
  CHECK(refusal(larger, {.batch = 1}).empty());
  CHECK(refusal(small, {.batch = 4, .accumulate = 2}).empty());
  CHECK(refusal(small, {.batch = 4, .ranks = 2}).empty());
}

TEST_CASE("batch norms over several ranks count the rows of all of them", "[norm-values]") {
  const nn::Network network = network_for(32);
  CHECK(refusal(network, {.batch = 2, .ranks = 2, .norm_ranks = 2}).empty());
  CHECK(refusal(network, {.batch = 4, .ranks = 4, .norm_ranks = 2}).empty());
  CHECK_THAT(refusal(network, {.batch = 4, .last = 1, .ranks = 4, .norm_ranks = 4}),
             Contains("data.keep-last"));
}

TEST_CASE("a last batch that leaves some rank one row is an error that names data.keep-last",
          "[norm-values]") {
  const nn::Network network = network_for(32);
  CHECK_THAT(refusal(network, {.batch = 32, .last = 1}), Contains("data.keep-last = true") &&
                                                             Contains("last batch 1 row") &&
                                                             Contains("leave out data.keep-last"));
  CHECK_THAT(refusal(network, {.batch = 32, .last = 3, .ranks = 2}), Contains("2 ranks"));
  CHECK(refusal(network, {.batch = 32, .last = 2}).empty());
}

TEST_CASE("batch norms in frozen layers take any number of rows", "[norm-values]") {
  const nn::Network network = network_for(32);
  const nn::Network tuned = nn::with_frozen(network, nn::Freeze::backbone);
  CHECK(refusal(nn::trained_part(tuned), {.batch = 1}).empty());
}
