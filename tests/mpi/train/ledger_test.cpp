#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/train/loop/ledger.hpp"
#include "tests/mpi/train/train_fixture.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/support/harness/mpi_world.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace fs = std::filesystem;

namespace {

/// A powercap tree that all ranks see, with one package.
struct SharedPowercap {
  explicit SharedPowercap(comm::Control& with) : control(with) {
    if (control.rank() == 0) mine = std::make_unique<Folder>("ledger");
    root = control.broadcast(mine ? mine->path.string() : "", "test folder");
    zone = root / "sys/class/powercap/intel-rapl:0";
    if (mine) write_file(zone / "name", "package-0\n");
    if (mine) write_file(zone / "max_energy_range_uj", "10000000\n");
    set(9000000);
  }
  ~SharedPowercap() { control.barrier("end of the test folder"); }
  void set(int microjoules) const {
    control.barrier("before the counter changes");
    if (mine) write_file(zone / "energy_uj", std::to_string(microjoules) + "\n");
    control.barrier("the counter has changed");
  }

  comm::Control& control;
  std::unique_ptr<Folder> mine;
  fs::path root, zone;
};

/// Each rank has a separate core, and one that all ranks of its machine have.
train::RunSpec spec_of(const comm::Control& control, const fs::path& root, int machines) {
  train::RunSpec spec;
  std::vector<comm::RankPlace> places;
  for (int rank = 0; rank < control.world(); ++rank)
    places.push_back({std::to_string(rank % machines), std::to_string(rank)});
  spec.nodes = comm::Nodes(places);
  spec.cores = {0, control.rank() + 1};
  spec.started_s = now_s() - 36;
  spec.machine_root = root;
  spec.config.cost.per_core_hour = 100;
  return spec;
}

}  // namespace

TEST_CASE("energy of a machine and its cores count once, however many of the ranks it has",
          "[ledger]") {
  const auto control = test::make_control(60);
  for (int machines = 1; machines <= control->world(); ++machines) {
    CAPTURE(machines);
    const SharedPowercap tree(*control);
    const train::RunSpec spec = spec_of(*control, tree.root, machines);
    train::Ledger ledger(spec, *control);
    control->barrier("all have looked at the counter");
    const auto count = static_cast<std::uint64_t>(machines);
    CHECK(ledger.hardware().machines == count);
    CHECK(ledger.hardware().cores == static_cast<std::uint64_t>(control->world()) + count);
    CHECK(ledger.hardware().gpus == 0);
    tree.set(1500000);  // it has started again
    const observe::LedgerRecord record = ledger.record(3, 12);
    const std::size_t kept = control->rank() == 0 ? 1 : 0;
    REQUIRE(on_every_rank(record.energy.size() == kept && ledger.records().size() == kept));
    if (kept == 0) continue;
    CHECK(record.energy[0].joules == 2.5 * machines);
    CHECK(record.energy[0].machines == count);
    CHECK(record.energy[0].why.empty());
    CHECK(record.seconds >= 36);
    CHECK(record.cost == Approx(record.seconds / 36 * static_cast<double>(record.cores)));
    CHECK(record.epoch == 3);
    CHECK(record.step == 12);
    const observe::LedgerRecord rest = ledger.record_alone(4, 13);
    CHECK(rest.energy[0].joules == 0);
    CHECK(rest.energy[0].machines == 1);
    CHECK(rest.energy[0].why.empty() == (machines == 1));
    CHECK(rest.seconds < record.seconds);
  }
}
