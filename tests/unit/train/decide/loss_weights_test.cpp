#include <hdf5.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "lockstep/base/error.hpp"
#include "lockstep/train/specs.hpp"
#include "tests/unit/data/shard_fixture.hpp"

using namespace lockstep;
using namespace lockstep::train;
using Catch::Matchers::Contains;
using lockstep::test::Folder;
using lockstep::test::pixels;
using lockstep::test::small_info;

namespace {

/// 8, 2 and 0 rows of three classes.
data::DataSet uneven(const Folder& folder) {
  const std::filesystem::path path = folder.path / "uneven.h5";
  data::ShardWriter writer(path, small_info(), 10);
  for (std::size_t row = 0; row < 10; ++row) writer.write(pixels(small_info(), row), row % 5 == 3);
  writer.finish();
  return data::DataSet(path);
}

std::vector<float> weights_of(const data::DataSet& rows, const std::string& text,
                              float balance = 0) {
  config::Config config;
  config.optim.class_weights = text;
  std::shared_ptr<const data::ClassBalance> order;
  if (balance > 0) order = data::balance_classes(rows.labels(), 3, balance);
  return loss_weights(config, rows, order.get());
}

}  // namespace

TEST_CASE("class weights have the mean 1 over the rows of an epoch", "[loss_weights]") {
  const Folder folder;
  const data::DataSet rows = uneven(folder);
  CHECK(loss_weights({}, rows, nullptr).empty());
  CHECK(weights_of(rows, "auto") == std::vector<float>{0.625f, 2.5f, 0});  // n / (2 n_c)
  CHECK(weights_of(rows, "1,4,9") == std::vector<float>{0.625f, 2.5f, 5.625f});
  CHECK(weights_of(rows, "10,40,90") == weights_of(rows, "1,4,9"));
  CHECK(weights_of(rows, "2,2,2") == std::vector<float>{1, 1, 1});
  // Of ten places the balance gives 5 to each class that has rows; by 1/2, 7 and 3.
  CHECK(weights_of(rows, "1,3,0", 1) == std::vector<float>{0.5f, 1.5f, 0});
  const std::vector<float> half = weights_of(rows, "auto", 0.5f);
  CHECK(half[0] == Approx(10.0 / (2 * 7)));
  CHECK(half[1] == Approx(10.0 / (2 * 3)));
}

TEST_CASE("weights that cannot be are errors that name the key", "[loss_weights]") {
  const Folder folder;
  const data::DataSet rows = uneven(folder);
  for (const auto& [text, why] :
       {std::pair{"1,2", "has 2 numbers, and the training set has 3 classes"},
        {"1,2,3,4", "has 4 numbers"},
        {"1,-2,3", "'-2' is not a weight"},
        {"1,nan,3", "'nan' is not a weight"},
        {"1,,3", "'' is not a weight"},
        {"balanced", "'balanced' is not a weight: numbers from 0, with commas, or auto"},
        {"0,0,1", "all training rows weigh 0"}}) {
    CHECK_THROWS_WITH(weights_of(rows, text), Contains("optim.class-weights") && Contains(why));
    CHECK_THROWS_AS(weights_of(rows, text), InputError);
  }
}

TEST_CASE("weights and balance are said in one line", "[loss_weights]") {
  const Folder folder;
  const data::DataSet rows = uneven(folder);
  CHECK(say_weights({}, nullptr, rows.info()).empty());
  CHECK(say_weights({0.625f, 2.5f, 0}, nullptr, rows.info()) ==
        "the loss of classes is multiplied by 0 to 2.5");
  const auto balance = data::balance_classes(rows.labels(), 3, 1);
  CHECK(say_weights({}, balance.get(), rows.info()) ==
        "an epoch takes 5 to 5 rows of each class, and a row up to 3 times");
}
