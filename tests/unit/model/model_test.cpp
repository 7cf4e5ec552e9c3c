#include "lockstep/model/model.hpp"

#include <limits>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/model/network_text.hpp"
#include "tests/unit/model/checkpoint_fixture.hpp"
#include "tests/unit/model/network_fixture.hpp"
#include "tests/unit/model/sealed_checkpoint.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::test;
using Catch::Contains;

namespace {

CheckpointHeader header_of_small_network() {
  CheckpointHeader header = some_header();
  header.network = small_network_text;
  header.preparation = {.fit = Resized::others, .short_side = 6};
  header.input.height = 4;
  header.input.width = 5;
  return header;
}

FakeParameters parameters_of(const std::string& network, float start = 0) {
  return FakeParameters(nn::tensors(parse_network(network)), start);
}

struct Saved {
  explicit Saved(const CheckpointHeader& header = header_of_small_network()) {
    write_checkpoint(path, header, parameters_of(small_network_text, 3));
  }
  /// Gives the file another format, with a right checksum.
  void set_format(int format) const {
    std::string bytes = read_text(path);
    seal(bytes, format);
    write_text_atomically(path, bytes);
  }
  const Folder folder;
  const std::filesystem::path path = folder.path / "x.h5";
};

}  // namespace

TEST_CASE("a checkpoint alone gives back network, weights, classes, normalisation and input",
          "[checkpoint]") {
  const Saved saved;
  const Model model = load(saved.path);
  CHECK(same(model.about.network, parse_network(small_network_text)));
  CHECK(model.about.input.classes == some_header().input.classes);
  CHECK(model.about.input.mean == some_header().input.mean);
  CHECK(model.about.input.stddev == some_header().input.stddev);
  CHECK(model.about.input.height == 4);
  CHECK(model.about.input.width == 5);
  CHECK(model.about.input.channels == 3);
  CHECK(model.about.preparation == Preparation{.fit = Resized::others, .short_side = 6});

  const FakeParameters written = parameters_of(small_network_text, 3);
  REQUIRE(model.weights.size() == written.layout().slices.size());
  for (const Weight& weight : model.weights) {
    CAPTURE(weight.tensor.name);
    const nn::Slice& slice = written.layout().find(weight.tensor.name);
    const auto index = static_cast<std::size_t>(&slice - written.layout().slices.data());
    CHECK(weight.tensor.shape == slice.tensor.shape);
    CHECK(weight.values == written.plain(Part::weights, index));
  }
}

TEST_CASE("weights are put into the parameters that they belong to", "[checkpoint]") {
  const Saved saved;
  const Model model = load(saved.path);
  std::vector<nn::Tensor> tensors;
  for (const Weight& weight : model.weights) tensors.push_back(weight.tensor);
  FakeParameters parameters(tensors, -7);
  put_weights(model, parameters);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    CHECK(parameters.plain(Part::weights, i) == model.weights[i].values);
  FakeParameters other(small_model());
  CHECK_THROWS_AS(put_weights(model, other), Error);
}

TEST_CASE("a checkpoint without names of classes is a model of unnamed classes", "[checkpoint]") {
  CheckpointHeader header = header_of_small_network();
  header.input.classes.clear();
  const Saved saved(header);
  const Model model = load(saved.path);
  CHECK(model.about.input.classes.empty());
  CHECK(model.about.network.classes == 2);
}

TEST_CASE("a checkpoint of format 2 is explained by the caller", "[checkpoint]") {
  const Saved saved;
  saved.set_format(2);
  CHECK_THROWS_WITH(load(saved.path),
                    Contains("x.h5: has checkpoint format 2, which only the configuration"));
  std::string config;
  const Model model = load(saved.path, [&](const CheckpointHeader& header, const auto&) {
    CHECK(header.format == 2);
    CHECK(header.network.empty());
    config = header.config;
    return Description{parse_network(small_network_text), header.input, {}};
  });
  CHECK(config == some_header().config);
  CHECK(same(model.about.network, parse_network(small_network_text)));
  CHECK(model.weights.size() == 7);
}

TEST_CASE("a checkpoint of a newer format is an error that names the file and both formats",
          "[checkpoint]") {
  const Saved saved;
  for (const int format : {0, 1, 8, 2'000'000'000}) {
    saved.set_format(format);
    const std::string both = std::to_string(format) + ", but this lockstep reads formats 2 to 7";
    CHECK_THROWS_WITH(load(saved.path), Contains("x.h5: has checkpoint format " + both));
  }
}

TEST_CASE("a checkpoint whose parts contradict each other is an error", "[checkpoint]") {
  const auto error_of = [](const CheckpointHeader& header) -> std::string {
    const Saved saved(header);
    try {
      load(saved.path);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  CheckpointHeader header = header_of_small_network();
  header.input.height = 5;
  CHECK_THAT(error_of(header), Contains("x.h5: its network takes 4 x 5 x 3, but its header says 5 "
                                        "x 5 x 3"));
  header = header_of_small_network();
  header.input.classes.push_back("a third");
  CHECK_THAT(error_of(header), Contains("x.h5: its network has 2 classes, but it names 3"));
  header = header_of_small_network();
  header.input.mean[1] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(error_of(header), Contains("x.h5: mean nan and deviation 0.5 of channel 1"));
  header = header_of_small_network();
  header.input.stddev[2] = 0;
  CHECK_THAT(error_of(header), Contains("of channel 2 cannot normalise anything"));
  header = header_of_small_network();
  header.network = replaced(small_network_text, R"("channels":16)", R"("channels":32)");
  CHECK_THAT(error_of(header), Contains("x.h5: a checkpoint of another model: tensor 'conv1.weight'"
                                        " is [16, 3, 3, 3] there and [32, 3, 3, 3] here"));
  header.network.clear();
  CHECK_THAT(error_of(header), Contains("x.h5: the data set /network: it is not JSON"));
}
