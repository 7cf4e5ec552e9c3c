// Frozen layers and the backbone's learning rate, in whole training steps.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "lockstep/base/error.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/model/network_text.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/support/laws/solo.hpp"
#include "tests/unit/train/trainer_fixture.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;
using namespace lockstep::train;
using Catch::Matchers::Contains;

namespace {

constexpr const char* all_names[] = {"conv1", "layer1", "layer2", "layer3", "backbone"};

/// A trainer on two threads, whose layers are frozen as its configuration says.
struct Tuned {
  explicit Tuned(const std::string& toml)
      : config(given(toml)),
        host(make_cpu_backend({std::vector<std::vector<int>>(2)})),
        spec(make_trainer_spec(config, small_data(), 1)),
        trainer(std::make_unique<Trainer>(spec, *host, nobody)) {}
  void steps(std::size_t count, float lr) {
    for (std::size_t i = 0; i < count; ++i) trainer->step(data.batch, few_rows, lr);
  }
  const nn::ArenaLayout& layout() { return trainer->parameters().layout(); }
  std::size_t reduced_bytes() const {
    std::size_t floats = 0;
    for (const reduce::Bucket& bucket : trainer->exchange().buckets()) floats += bucket.size;
    return floats * sizeof(float);
  }

  std::unique_ptr<Program> compiled(std::size_t batch) const {
    ProgramSpec program = spec.program;
    program.batch = batch;
    return host->compile(spec.network, program, trainer->parameters());
  }

  config::Config config;
  std::unique_ptr<Backend> host;
  SoloCommunicator nobody;
  TrainerSpec spec;
  Rows data;
  std::unique_ptr<Trainer> trainer;
};

std::string frozen_toml(const std::string& name, const std::string& more = "") {
  return "freeze = \"" + name + "\"\n" + more;
}

}  // namespace

TEST_CASE("frozen weights and statistics keep their bits, and all others learn", "[freeze]") {
  for (const char* name : all_names) {
    INFO(name);
    Tuned it(frozen_toml(name, "optim.ema = 0.5"));
    const auto before = state(*it.trainer, Part::weights);
    it.steps(3, 0.05f);
    const auto after = state(*it.trainer, Part::weights);
    const auto average = state(*it.trainer, Part::average);
    for (std::size_t s = 0; s < before.size(); ++s) {
      INFO(it.layout().slices[s].tensor.name);
      const bool frozen = s >= it.layout().moving_slices();
      CHECK((after[s] == before[s]) == frozen);
      CHECK((average[s] == after[s]) == frozen);
    }
  }
}

TEST_CASE("the more is frozen, the less is reduced, kept and made by backward", "[freeze]") {
  std::size_t reduced = Tuned("").reduced_bytes(), steps = 1000;
  // With enough rows, values outweigh what the frozen layers make of their weights.
  const auto memory_of = [](const Tuned& it) { return it.compiled(64)->memory().activations; };
  std::size_t values = memory_of(Tuned(""));
  for (const char* name : {"conv1", "layer1", "layer2", "backbone"}) {
    INFO(name);
    Tuned it(frozen_toml(name));
    std::size_t learning = 0;
    for (std::size_t s = 0; s < it.layout().moving_slices(); ++s)
      learning += (it.layout().slices[s].tensor.count() + 15) / 16 * 16 * sizeof(float);
    CHECK(it.reduced_bytes() <= learning);
    CHECK(learning - it.reduced_bytes() < 64);  // the last slice needs no padding
    CHECK(it.reduced_bytes() < reduced);
    CHECK(memory_of(it) < values);
    const std::size_t pieces = it.compiled(few_rows)->backward(false).size();
    CHECK(pieces < steps);
    reduced = it.reduced_bytes();
    values = memory_of(it);
    steps = pieces;
  }
  CHECK(reduced < 1000);
}

TEST_CASE("what is made again gives the same bits next to frozen layers", "[freeze]") {
  Tuned kept(frozen_toml("layer1")), again(frozen_toml("layer1", "recompute = \"2\""));
  for (Tuned* it : {&kept, &again}) it->steps(3, 0.05f);
  CHECK(again.trainer->memory().made_again > 0);
  CHECK(state(*kept.trainer, Part::weights) == state(*again.trainer, Part::weights));
}

TEST_CASE("with frozen layers k steps + save + k steps = 2k steps", "[freeze]") {
  const Folder folder;
  const std::string toml = frozen_toml("layer2", "optim.ema = 0.9");
  Tuned whole(toml), first(toml), second(toml + "\nseed = 7");
  whole.steps(4, 0.05f);
  first.steps(2, 0.05f);
  const std::filesystem::path file = folder.path / "saved.h5";
  model::CheckpointHeader header;
  header.network = model::network_text(first.spec.network);
  header.input = small_data();
  model::write_checkpoint(file, header, first.trainer->parameters());
  model::load_tensors(file, second.trainer->parameters(), true);
  second.trainer->continue_after(2);
  second.steps(2, 0.05f);
  for (const Part part : {Part::weights, Part::average})
    CHECK(state(*second.trainer, part) == state(*whole.trainer, part));
  CHECK(second.trainer->parameters().hash() == whole.trainer->parameters().hash());
  const auto tensors = model::list_tensors(file);
  const auto has = [&](const std::string& name) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const model::TensorEntry& one) { return one.name == name; });
  };
  CHECK(has("weights/layer2.0.conv1.weight"));
  CHECK(has("ema/layer2.0.conv1.weight"));
  CHECK_FALSE(has("momentum/layer2.0.conv1.weight"));
  CHECK(has("momentum/layer3.0.conv1.weight"));
}

// 0.5 and 0.125 are exact, and so is their product with any learning rate here.
TEST_CASE("the backbone learns at its factor of the rate, and the head at the rate", "[freeze]") {
  const std::string rule = GENERATE("momentum = 0.9\nnesterov = true\n",
                                    "rule = \"lars\"\nlr = 5\ntrust = 0.01\nweight-decay = 0.05\n");
  Tuned it("[optim]\n" + rule + "backbone-lr-factor = 0.125\n");
  Tuned slow("[optim]\n" + rule), fast("[optim]\n" + rule);
  it.steps(1, 0.5f);
  slow.steps(1, 0.0625f);
  fast.steps(1, 0.5f);
  const auto got = state(*it.trainer, Part::weights);
  const auto at_slow = state(*slow.trainer, Part::weights);
  const auto at_fast = state(*fast.trainer, Part::weights);
  for (std::size_t s = 0; s < it.layout().learned_slices; ++s) {
    const nn::Tensor& tensor = it.layout().slices[s].tensor;
    INFO(tensor.name);
    CHECK(got[s] == (nn::in_head(tensor.role) ? at_fast[s] : at_slow[s]));
    CHECK(at_slow[s] != at_fast[s]);
  }
}

TEST_CASE("a factor of 0, and one of a backbone that is frozen, are errors", "[freeze]") {
  CHECK_THROWS_WITH(given("optim.backbone-lr-factor = 0"), Contains("--freeze backbone"));
  CHECK_THROWS_WITH(given(frozen_toml("backbone", "optim.backbone-lr-factor = 0.5")),
                    Contains("optim.backbone-lr-factor = 0.5 would have no effect"));
  CHECK_THROWS_WITH(given(frozen_toml("fc")), Contains("freeze") && Contains("backbone"));
  CHECK_NOTHROW(given(frozen_toml("layer1", "optim.backbone-lr-factor = 0.5")));
}

TEST_CASE("the memory of an exchange is counted for what is trained, not for frozen layers",
          "[freeze][exchange][memory]") {
  for (const char* exchange :
       {"comm.wire = \"bf16\"", "comm.wire = \"int8\"", "sync.every = 4", "sync.gossip = true"}) {
    const auto counted = [&](const std::string& name) {
      return make_trainer_spec(given(frozen_toml(name, exchange), 2), small_data(), 2);
    };
    for (const char* name : all_names) {
      CAPTURE(exchange, name);
      const TrainerSpec spec = counted(name);
      const std::size_t arena = Tuned(frozen_toml(name)).layout().size;
      // The arena is a little larger: its slices begin at whole lines of a cache.
      const std::size_t most =
          reduce::exchange_bytes(spec.exchange, {.numbers = arena, .world = 2});
      CHECK(spec.program.exchange_bytes <= most);
      CHECK(spec.program.exchange_bytes > most - most / 8);
      CHECK(spec.program.exchange_bytes < counted("none").program.exchange_bytes);
    }
  }
}
