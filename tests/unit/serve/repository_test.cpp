// Models that are loaded again while they answer.
#include "serve/service/repository.hpp"

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "serve/batching/batcher.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::test;
using namespace lockstep::serve;

namespace {

/// A small network as a file holds it; there is no file.
struct SmallModel {
  Case network{plain(), 2, 5};
  Compiled compiled{network, 2, make_cpu_backend({}), Precision::fp32};
  ServeSpec spec;
  Batcher batcher{8};
  std::size_t reads = 0;
  bool is_broken = false;

  ModelFile file() {
    ++reads;
    require(!is_broken, "it is broken");
    model::Model model;
    model.about.network = network.network;
    data::DataSetInfo& input = model.about.input;
    input.height = network.network.input.height;
    input.width = network.network.input.width;
    input.channels = network.network.input.channels;
    for (std::size_t k = 0; k < network.network.classes; ++k)
      input.classes.push_back(std::to_string(k));
    const auto& slices = compiled.parameters->layout().slices;
    for (std::size_t s = 0; s < slices.size(); ++s)
      model.weights.push_back({slices[s].tensor, compiled.exported(Part::weights, s)});
    ProgramSpec program = compiled.program->spec();
    program.training = false;
    program.mean.assign(input.channels, 0.5f);
    program.stddev.assign(input.channels, 0.25f);
    ModelFile made{.members = {}, .arrangement = {}, .input = input};
    made.members.push_back({"small", std::move(model), program});
    return made;
  }
  std::vector<ModelSource> sources() {
    return {{.name = "m",
             .text = "small",
             .locate = [] { return ModelSource::Files{}; },
             .read = [this](const ModelSource::Files&) { return file(); }}};
  }
  void turn(std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) batcher.turn(0);
  }
};

constexpr std::size_t many_turns = 1000;

}  // namespace

TEST_CASE("who asks for a load while one is on its way gets one more", "[cpu][serve]") {
  SmallModel small;
  Repository repository(small.spec, small.sources(), *small.compiled.backend, small.batcher);
  repository.load();
  const auto number = [&] { return repository.find("m", "")->number(); };
  repository.look(true);
  repository.look(true);
  CHECK(small.reads == 2);
  small.turn(many_turns);
  CHECK(number() == "2");
  for (const char* const expected : {"3", "3"}) {
    repository.look(false);
    small.turn(many_turns);
    CHECK(number() == expected);
  }
}

TEST_CASE("a model that cannot be loaded again answers on, and says why", "[cpu][serve]") {
  SmallModel small;
  Repository repository(small.spec, small.sources(), *small.compiled.backend, small.batcher);
  repository.load();
  small.is_broken = true;
  repository.look(true);
  small.turn(many_turns);
  CHECK(repository.find("m", "")->number() == "1");
  CHECK(repository.problem("m") == "it is broken");
  small.is_broken = false;
  repository.look(true);
  small.turn(many_turns);
  CHECK(repository.find("m", "")->number() == "2");
  CHECK(repository.problem("m").empty());
}
