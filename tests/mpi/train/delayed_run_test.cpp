// Whole runs with an exchange that does not keep ranks equal: resume, validation, checkpoints, and
// what a run says about itself.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/run.hpp"
#include "lockstep/train/specs.hpp"
#include "tests/mpi/train/train_fixture.hpp"
#include "tests/support/harness/mpi_world.hpp"
#include "tests/support/networks/delayed_average.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;
using train::Outcome;

namespace {

constexpr std::size_t micro = 4, steps_of_an_epoch = 4;

/// What is printed while it lives, on rank 0.
class Printed {
 public:
  explicit Printed(const std::filesystem::path& file) : file_(file), before_(dup(1)) {
    std::fflush(stdout);
    const int to = open(file.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(to, 1);
    close(to);
  }
  ~Printed() { end(); }
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;
  std::string end() {
    if (before_ < 0) return text_;
    std::fflush(stdout);
    dup2(before_, 1);
    close(std::exchange(before_, -1));
    return text_ = read_text(file_);
  }

 private:
  std::filesystem::path file_;
  int before_;
  std::string text_;
};

/// Runs of two epochs of four steps, validated, in a folder that all ranks see.
struct Runs {
  comm::Control* control = test::make_control(60);
  std::unique_ptr<comm::Communicator> communicator = test::make_communicator(60);
  std::unique_ptr<Backend> backend = make_cpu_backend({});
  const std::size_t ranks = static_cast<std::size_t>(control->world());
  SharedShard shard{*control, micro* ranks* steps_of_an_epoch};
  std::filesystem::path root = shard.path().parent_path();
  std::string said;  ///< by the newest run, on rank 0

  config::Config config(const std::string& name) const {
    config::Config config;
    config.model = "resnet20";
    config.data.train = config.data.val = shard.path().string();
    config.out = (root / name).string();
    config.batch = micro * ranks;
    config.epochs = 2;
    config.data.workers = 1;
    config.comm.bucket_mb = 0.1f;
    config.optim.ema = 0.9f;
    config.audit.every_steps = 0;
    config.winograd.mode = Winograd::Mode::never;
    return config;
  }
  Outcome run(const config::Config& config, const DelayedAverageSpec& how = {.period = 3}) {
    train::RunSpec spec;
    spec.config = config;
    spec.binding_report = [](const auto&) { return std::string("{}"); };
    spec.started_s = now_s();
    spec.grid = all_replicas(*control);
    spec.nodes = comm::gather_nodes(*control, comm::place_of_process("node"));
    spec.make_exchange = DelayedAverage::maker(how);
    Printed printed(root / fmt::format("printed-{}", control->rank()));
    const Outcome outcome = train::run_training(spec, *backend, *communicator, *control);
    said = printed.end();
    control->barrier("end of a run");
    return outcome;
  }
  std::filesystem::path checkpoint(const std::string& name, int step) const {
    return root / name / "checkpoints" / fmt::format("step-{:08}.h5", step);
  }
  static reduce::ExchangeState exchange_state(const std::filesystem::path& file) {
    reduce::ExchangeState state;
    for (const auto& [name, bytes, sum] : model::list_exchange_parts(file)) {
      state[name].resize(bytes);
      model::ExchangePartReader(file, name).read(std::as_writable_bytes(std::span(state[name])));
    }
    return state;
  }
  /// Whether two checkpoints hold the same state, of all ranks.
  bool equal(const std::filesystem::path& one, const std::filesystem::path& other) const {
    const auto a = model::list_tensors(one), b = model::list_tensors(other);
    bool same = a.size() == b.size() && exchange_state(one) == exchange_state(other);
    for (std::size_t i = 0; same && i < a.size(); ++i)
      same = a[i].name == b[i].name && a[i].crc32c == b[i].crc32c;
    return same;
  }
};

/// The end of an error of that rank alone.
std::string on_rank(int rank) { return rank == 0 ? "" : fmt::format(" (on rank {})", rank); }

}  // namespace

TEST_CASE(
    "a run whose ranks differ resumes from any step with the same bits, and names its "
    "exchange",
    "[exchange]") {
  Runs runs;
  REQUIRE(runs.run(runs.config("whole")) == Outcome::finished);
  if (runs.control->rank() == 0)
    CHECK_THAT(runs.said, Catch::Contains("exchange 'delayed-average': each rank steps alone"));
  CHECK(
      on_every_rank(model::read_header(runs.checkpoint("whole", 8)).exchange == "delayed-average"));
  for (const int step : {3, 6}) {  // each with a difference that is not applied yet
    const std::string name = fmt::format("cut-{}", step);
    config::Config config = runs.config(name);
    config.stop_after = static_cast<std::uint64_t>(step);
    REQUIRE(runs.run(config) == Outcome::stopped);
    config.stop_after = 0;
    config.resume = "auto";
    REQUIRE(runs.run(config) == Outcome::finished);
    CHECK(on_every_rank(runs.equal(runs.checkpoint("whole", 8), runs.checkpoint(name, 8))));
  }
}

TEST_CASE("a state that one rank cannot load ends all ranks, with that error", "[exchange]") {
  Runs runs;
  config::Config config = runs.config("run");
  config.stop_after = 2;
  REQUIRE(runs.run(config) == Outcome::stopped);
  config.stop_after = 0;
  config.resume = "auto";
  const int last = runs.control->world() - 1;
  CHECK_THROWS_WITH(
      runs.run(config, {.unloadable = last}),
      Catch::Contains("step-00000002.h5: cannot load its part") && Catch::EndsWith(on_rank(last)));
}

TEST_CASE("a file that one rank cannot read ends all ranks, with that error", "[exchange]") {
  Runs runs;
  config::Config config = runs.config("run");
  config.stop_after = 2;
  REQUIRE(runs.run(config) == Outcome::stopped);
  const std::string file = "run/checkpoints/step-00000002.h5";
  const auto before = std::filesystem::current_path();
  const bool last = runs.control->rank() + 1 == runs.control->world();
  std::filesystem::current_path(last ? std::filesystem::path("/") : runs.root);
  for (const auto key : {&config::Config::resume, &config::Config::init}) {
    config::Config reads = runs.config("other");
    reads.*key = file;
    CHECK_THROWS_WITH(runs.run(reads), Catch::Contains(file) && Catch::Contains("No such file") &&
                                           Catch::EndsWith(on_rank(runs.control->world() - 1)));
  }
  std::filesystem::current_path(before);
}

TEST_CASE("where ranks differ, no step depends on validations, checkpoints and audits",
          "[exchange][slow]") {
  Runs runs;
  config::Config plain = runs.config("plain"), checked = runs.config("checked");
  plain.data.val.clear();
  checked.audit.every_steps = checked.checkpoint.every_steps = 1;
  checked.checkpoint.keep = 100;
  REQUIRE(runs.run(plain) == Outcome::finished);
  REQUIRE(runs.run(checked) == Outcome::finished);
  CHECK(on_every_rank(runs.equal(runs.checkpoint("plain", 8), runs.checkpoint("checked", 8))));
}

TEST_CASE("where ranks differ, what is validated and audited is what the checkpoint holds",
          "[exchange]") {
  Runs runs;
  const config::Config config = runs.config("run");
  REQUIRE(runs.run(config, {.period = 100}) ==
          Outcome::finished);  // the ranks never meet but for this
  const data::DataSet set(runs.shard.path());
  const nn::Network network = infer::make_network(config, set.info());
  const auto parameters = runs.backend->make_parameters(network, Precision::fp32);
  train::EvaluatorSpec spec;
  spec.network = network;
  spec.program = infer::make_program_spec(config, set.info(), micro);
  spec.augment =
      model::evaluation_augment(infer::preparation(config, set.info()), set.info(), set.info());
  spec.replicas = all_replicas(*runs.control).replicas;
  train::Evaluator evaluator(spec, *runs.backend, *parameters, *runs.control, set);
  // As records have them.
  const auto text = [](double loss) { return fmt::format("{:.9g}", loss); };
  std::vector<std::string> losses, recorded;
  model::load_tensors(runs.checkpoint("run", 8), *parameters, false);
  losses.push_back(text(evaluator.evaluate().mean.loss));
  model::load_average(runs.checkpoint("run", 8), *parameters);
  losses.push_back(text(evaluator.evaluate().mean.loss));
  observe::read_records(runs.root / "run" / "metrics.jsonl", [&](const observe::Record& record) {
    if (const auto* epoch = std::get_if<observe::EpochRecord>(&record); epoch && epoch->epoch == 2)
      recorded = {text(epoch->validation->loss), text(epoch->average->loss)};
    return true;
  });
  CHECK(on_every_rank(recorded == losses));
}

TEST_CASE(
    "a checkpoint of ranks that differ is an error for another number of ranks, and for "
    "another exchange",
    "[exchange]") {
  Runs runs;
  config::Config config = runs.config("run");
  config.stop_after = 2;
  REQUIRE(runs.run(config) == Outcome::stopped);
  const auto file = runs.checkpoint("run", 2);
  const std::string saved_by = model::read_header(file).exchange;
  reduce::ExchangeState state = runs.exchange_state(file);
  REQUIRE(state.size() == runs.ranks);
  train::TrainerSpec spec = small_trainer(micro);
  spec.average = {.decay = 0.9f};
  spec.make_exchange = DelayedAverage::maker({});
  train::Trainer trainer(spec, *runs.backend, *runs.communicator);
  state["rank-77"] = "more";
  CHECK_THROWS_WITH(
      reduce::load_state(trainer.exchange(), saved_by, {{}, state}, "step-2", 2),
      Catch::Contains(fmt::format("step-2: the exchange's state is of {} rank(s), not of {}",
                                  runs.ranks + 1, runs.ranks)));
  CHECK_THROWS_WITH(
      reduce::load_state(trainer.exchange(), "local", reduce::ExchangeState(), "step-2", 2),
      Catch::Contains("'local'") && Catch::Contains("'delayed-average'"));
}
