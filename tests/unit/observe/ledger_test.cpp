#include "lockstep/observe/ledger.hpp"

#include <catch2/catch.hpp>

#include "lockstep/observe/records.hpp"

using namespace lockstep::observe;
using Catch::Contains;

namespace {

LedgerRecord used(std::uint64_t epoch, double seconds, std::optional<double> joules) {
  LedgerRecord record{.epoch = epoch,
                      .step = 10 * epoch,
                      .seconds = seconds,
                      .cores = 4,
                      .gpus = 2,
                      .machines = 2,
                      .cost = std::nullopt,
                      .energy = {}};
  record.energy.push_back({.source = "RAPL",
                           .counts = "processor packages",
                           .joules = joules,
                           .seconds = joules ? seconds : 0,
                           .machines = joules ? 2u : 0u,
                           .why = joules ? "" : "energy_uj: Permission denied"});
  return record;
}

}  // namespace

TEST_CASE("a ledger's line is read back as it was written", "[ledger]") {
  LedgerRecord record = used(3, 1.5, 2.25);
  record.cost = 0.125;
  record.time_ms = 7;
  record.energy.push_back({.source = "NVML", .counts = "the ranks' GPUs", .why = "\"no\""});
  const std::string line = to_json(Record(record));
  CHECK_THAT(line, Contains("\"kind\":\"ledger\"") && Contains("\"joules\":null"));
  const auto parsed = parse_record(line);
  REQUIRE(parsed);
  CHECK(to_json(*parsed) == line);
  CHECK(std::get<LedgerRecord>(*parsed).energy[0].joules == 2.25);
  CHECK_FALSE(std::get<LedgerRecord>(*parsed).energy[1].joules.has_value());
}

TEST_CASE("hours, joules and costs of records add up, also up to an epoch", "[ledger]") {
  // Epoch 2 was done again by a second start.
  std::vector<LedgerRecord> records = {used(1, 1800, 10), used(2, 900, 20), used(2, 3600, 30),
                                       used(3, 3600, 40)};
  for (LedgerRecord& one : records) one.cost = cost_of(one, 0.25, 1.5);
  const LedgerSum all = sum_of(records);
  CHECK(all.seconds == 9900);
  CHECK(all.core_hours == 11);
  CHECK(all.gpu_hours == 5.5);
  CHECK(all.cost == 11);
  REQUIRE(all.energy.size() == 1);
  CHECK(all.energy[0].joules == 100);
  CHECK(all.energy[0].seconds == 9900);
  CHECK(sum_until(records, 2).energy[0].joules == 60);
  CHECK(sum_until(records, 2).core_hours == 7);
  CHECK(sum_until(records, 9).records == 0);
}

TEST_CASE("a cost needs a price, and what the price is of", "[ledger]") {
  LedgerRecord one = used(1, 3600, 1);
  CHECK_FALSE(cost_of(one, 0, 0).has_value());
  CHECK(cost_of(one, 0, 3) == 6);
  one.cores = 0;
  CHECK_FALSE(cost_of(one, 1, 0).has_value());
  CHECK(cost_of(one, 0, 3) == 6);
}

TEST_CASE("a sum over unlike numbers of machines says where some did not measure", "[ledger]") {
  LedgerRecord wide = used(1, 60, 5), narrow = used(2, 60, 5);
  wide.machines = 4;  // two of them did not measure
  narrow.machines = 1;
  narrow.energy[0].machines = 1;
  CHECK(energy_text(sum_of({wide, narrow}).energy[0], 120, 1) ==
        "10 J (RAPL: processor packages), the rest not measured: 2 of 4 machines for 1:00");
}

TEST_CASE("energy that was not measured has a reason and no number", "[ledger]") {
  CHECK(energy_text(used(1, 10, 12345.6).energy[0], 10, 2) ==
        "12.35 kJ (RAPL: processor packages)");
  CHECK(energy_text(used(1, 10, 0).energy[0], 10, 2) == "0 J (RAPL: processor packages)");
  CHECK(energy_text(used(1, 10, std::nullopt).energy[0], 10, 2) ==
        "not measured (RAPL: processor packages): energy_uj: Permission denied");
  EnergyFigure part = used(1, 60, 5).energy[0];
  part.machines = 1;
  part.why = "n2: Permission denied";
  CHECK(energy_text(part, 100, 2) ==
        "5 J (RAPL: processor packages, on 1 of 2 machines, in 1:00 of 1:40), the rest not "
        "measured: n2: Permission denied");
}

TEST_CASE("one line says what all of a run used, and to its best validation", "[ledger]") {
  std::vector<LedgerRecord> records = {used(1, 1800, 10), used(2, 1800, 20)};
  for (LedgerRecord& one : records) one.cost = cost_of(one, 1, 0);
  const std::string line = ledger_line(records, 1);
  CHECK(line ==
        "used 1:00:00, 4 core-hours, 2 GPU-hours, cost 4; energy 30 J (RAPL: processor packages); "
        "to the best validation 30:00, 2 core-hours, 1 GPU-hours, cost 2");
  CHECK_THAT(ledger_line(records, 0), !Contains("best"));
  CHECK_THAT(ledger_line({used(1, 60, std::nullopt)}, 1), Contains("not measured"));
}

TEST_CASE("energy as one number is of whole sources, and no joule counts twice", "[ledger]") {
  LedgerRecord record = used(1, 60, 100);
  CHECK(whole_energy(record).joules == 100);
  CHECK(whole_energy(record).of == "RAPL");
  record.energy.push_back(
      {.source = "NVML", .counts = "the ranks' GPUs", .joules = 400, .seconds = 60, .machines = 2});
  CHECK(whole_energy(record).joules == 500);
  CHECK(whole_energy(record).of == "RAPL+NVML");
  record.energy[0].machines = 1;  // the other machine's counters cannot be read
  CHECK(whole_energy(record).joules == 400);
  CHECK(whole_energy(record).of == "NVML");
  record.energy[1].why = "lost for 20 s";
  CHECK_FALSE(whole_energy(record).joules.has_value());
  CHECK(whole_energy(record).of.empty());
  record.energy = {
      {.source = "pm_counters",
       .counts = "whole nodes",
       .joules = 900,
       .seconds = 60,
       .machines = 2},
      {.source = "NVML", .counts = "the ranks' GPUs", .joules = 400, .seconds = 60, .machines = 2}};
  CHECK(whole_energy(record).joules == 900);  // of whole nodes, with their GPUs
  CHECK(whole_energy(record).of == "pm_counters");
  CHECK_FALSE(whole_energy(used(1, 60, std::nullopt)).joules.has_value());
  CHECK_FALSE(whole_energy(used(1, 60, 0)).joules.has_value());  // a counter that does not count
}
