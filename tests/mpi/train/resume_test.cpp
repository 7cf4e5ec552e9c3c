#include <catch2/catch.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/train/run.hpp"
#include "tests/mpi/comm/pretended_nodes.hpp"
#include "tests/mpi/train/train_fixture.hpp"
#include "tests/support/harness/mpi_world.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t rows = 64, batch = 16, last_step = 8;

/// Trainings of this world on pretended nodes.
struct Trainings {
  std::unique_ptr<comm::Communicator> communicator = test::make_communicator(60);
  comm::Control* control = test::make_control(60);
  std::unique_ptr<backend::Backend> backend = backend::make_cpu_backend({});
  SharedShard shard{*control, rows};

  fs::path folder(const std::string& name) const { return shard.path().parent_path() / name; }

  /// The changes that the start notes, on rank 0.
  std::string train(const std::string& name, const comm::Nodes& nodes, std::size_t stop_after,
                    data::Shuffle shuffle = data::Shuffle::global) {
    train::RunSpec spec;
    config::Config& config = spec.config;
    config.model = "resnet20";
    config.data.train = shard.path().string();
    config.data.workers = 1;
    config.data.shuffle = shuffle;
    config.data.block = 4;
    config.out = folder(name).string();
    config.resume = "auto";
    config.batch = batch;
    config.epochs = 2;
    config.stop_after = stop_after;
    config.comm.bucket_mb = 0.1f;
    config.winograd.mode = backend::Winograd::Mode::never;  // what is measured may differ
    spec.binding_report = [](const auto&) { return std::string("{}"); };
    spec.started_s = now_s();
    spec.grid = all_replicas(*control);
    spec.nodes = nodes;
    train::run_training(spec, *backend, *communicator, *control);
    std::string changes;
    if (control->rank() != 0) return changes;
    observe::read_records(folder(name) / "metrics.jsonl", [&](const observe::Record& record) {
      if (const auto* resume = std::get_if<observe::ResumeRecord>(&record))
        changes = join(resume->changes, ", ");
      return true;
    });
    return changes;
  }

  /// Of all that a run of `last_step` steps has learned; on rank 0.
  std::vector<std::uint32_t> sums(const std::string& name) const {
    std::vector<std::uint32_t> sums;
    if (control->rank() != 0) return sums;
    for (const model::TensorEntry& tensor :
         model::list_tensors(folder(name) / "checkpoints" / "step-00000008.h5"))
      sums.push_back(tensor.crc32c);
    return sums;
  }
};

comm::Nodes cyclic() { return comm::Nodes({{"m", "a"}, {"m", "b"}, {"m", "a"}, {"m", "b"}}); }

}  // namespace

TEST_CASE(
    "sums over two levels: a resume on the same placement has the same bits, and one on "
    "another says that they may differ",
    "[mpi][resume][slow]") {
  if (world().facts().world != 4) return;
  Trainings runs;
  const comm::Nodes blocks = test::blocks({2, 2});
  CHECK(runs.train("whole", blocks, 0).empty());
  for (const auto& [name, nodes] :
       {std::pair<std::string, comm::Nodes>{"same", blocks}, {"cyclic", cyclic()}}) {
    runs.train(name, blocks, 5);
    const std::string changes = runs.train(name, nodes, 0);
    const bool same_bits = runs.sums(name) == runs.sums("whole");
    if (runs.control->rank() != 0) continue;
    CHECK(changes == (name == "same" ? "" : "the ranks of each node (0-1;2-3, now 0,2;1,3)"));
    CHECK(same_bits == (name == "same"));
  }
}

TEST_CASE("rows ordered by node: in an epoch, a resume on another placement is an error",
          "[mpi][resume][slow]") {
  if (world().facts().world != 4) return;
  Trainings runs;
  const comm::Nodes blocks = test::blocks({2, 2});
  runs.train("by-node", blocks, 2, data::Shuffle::node);
  std::string said;
  try {
    runs.train("by-node", cyclic(), 0, data::Shuffle::node);
  } catch (const InputError& error) {
    said = error.what();
  }
  INFO(said);
  CHECK(on_every_rank(said.find("'0-1;2-3'; now it is '0,2;1,3'") != std::string::npos));
  CHECK(runs.train("by-node", blocks, 0, data::Shuffle::node).empty());
}
