#include <catch2/catch.hpp>

#include <filesystem>
#include <iostream>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include "cluster/energy/energy_source.hpp"
#include "lockstep/cluster/energy/energy_meter.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::cluster;
using namespace lockstep::test;
using Catch::Contains;

namespace fs = std::filesystem;

namespace {

constexpr const char* largest = "1000000000";  // microjoules

struct Powercap : Folder {
  Powercap() : Folder("powercap") {}
  fs::path zone(const std::string& name) const { return path / "sys/class/powercap" / name; }
  void add(const std::string& name, const std::string& what, const std::string& microjoules) const {
    write_file(zone(name) / "name", what + "\n");
    write_file(zone(name) / "max_energy_range_uj", std::string(largest) + "\n");
    set(name, microjoules);
  }
  void set(const std::string& name, const std::string& microjoules) const {
    write_file(zone(name) / "energy_uj", microjoules + "\n");
  }
};

struct Cray : Folder {
  Cray() : Folder("cray") { set("energy", "1000 J 1657802513046018 us"); }
  void set(const std::string& file, const std::string& text) const {
    write_file(path / "sys/cray/pm_counters" / file, text + "\n");
  }
  void sample(int generation, int freshness, int joules) const {
    set("generation", std::to_string(generation) + " 1657802513046018 us");
    set("freshness", std::to_string(freshness));
    set("energy", std::to_string(joules) + " J 1657802513046018 us");
  }
};

/// Until it ends, this process may not read what only the owner may.
class Stranger {
 public:
  /// A user namespace may have no other user.
  static bool possible() {
    const uid_t was = ::geteuid();
    const bool is = was != 0 || (::seteuid(nobody) == 0 && ::seteuid(was) == 0);
    if (!is) std::cout << "SKIPPED: root cannot become another user here\n";
    return is;
  }
  explicit Stranger(const fs::path& folder, const fs::path& file) : was_(::geteuid()) {
    ::chmod(folder.c_str(), 0755);
    ::chmod(file.c_str(), was_ == 0 ? 0400 : 0000);
    if (was_ == 0) REQUIRE(::seteuid(nobody) == 0);
  }
  ~Stranger() {
    if (was_ == 0 && ::seteuid(was_) != 0) std::abort();
  }

 private:
  static constexpr uid_t nobody = 65534;
  uid_t was_;
};

}  // namespace

TEST_CASE("Slurm's figure of energy is a number of joules, or says why there is none", "[energy]") {
  CHECK(read_slurm_energy({{"COMPLETED", "12345"}}).joules == 12345);
  CHECK(read_slurm_energy({{"COMPLETED", "12345"}}).why.empty());
  for (const char* none : {"0", "", "18446744073709551614"}) {
    CHECK_FALSE(read_slurm_energy({{"FAILED", none}}).joules);
    CHECK(read_slurm_energy({{"FAILED", none}}).why.find("AcctGatherEnergyType") !=
          std::string::npos);
  }
  CHECK(read_slurm_energy({{"RUNNING", "0"}}).why.find("counts at its end") != std::string::npos);
  CHECK(read_slurm_energy({}).why.find("is not here") != std::string::npos);
  CHECK(slurm_energy("12; reboot").why == "it ran in no job of Slurm");
}

TEST_CASE("the energy of a job that Slurm started several times is that of all its starts",
          "[energy]") {
  CHECK(
      read_slurm_energy({{"PREEMPTED", "1000"}, {"NODE_FAIL", ""}, {"COMPLETED", "234"}}).joules ==
      1234);
  CHECK_FALSE(read_slurm_energy({{"PREEMPTED", "1000"}, {"RUNNING", "0"}}).joules);
}

TEST_CASE("RAPL counts each package once, whatever shows it again, and no sub-zone", "[energy]") {
  const Powercap tree;
  tree.add("intel-rapl:0", "package-0", "100");
  tree.add("intel-rapl:0:0", "core", "100");
  tree.add("intel-rapl:0:1", "dram", "100");
  tree.add("intel-rapl:1", "package-1", "7000");
  tree.add("intel-rapl:10", "psys", "100");
  tree.add("intel-rapl-mmio:0", "package-0", "100");
  write_file(tree.zone("intel-rapl") / "enabled", "1\n");
  const auto [rapl, why] = open_rapl(tree.path, 5);
  REQUIRE(rapl);
  CHECK(why.empty());
  for (const char* zone :
       {"intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:10", "intel-rapl-mmio:0"})
    tree.set(zone, "2000100");
  tree.set("intel-rapl:1", "1007000");
  const Consumed got = rapl->advance(7.5);
  CHECK(got.joules == 3);
  CHECK(got.seconds == 2.5);
  CHECK(got.lost.empty());
  CHECK(rapl->advance(8).joules == 0);
}

TEST_CASE("RAPL counts on where a counter starts again", "[energy]") {
  const Powercap tree;
  tree.add("intel-rapl:0", "package-0", "999000000");
  tree.add("intel-rapl:1", "package-1", "0");
  const auto rapl = open_rapl(tree.path, 0).source;
  REQUIRE(rapl);
  tree.set("intel-rapl:0", "1000000");
  tree.set("intel-rapl:1", "5000000");
  CHECK(rapl->advance(1).joules == 7);
  tree.set("intel-rapl:0", "999999999");
  CHECK(rapl->advance(2).joules == 998.999999);
}

TEST_CASE("dies that show the counter of their package are one, and others are not", "[energy]") {
  const Powercap tree;
  tree.add("intel-rapl:0", "package-0-die-0", "500");
  tree.add("intel-rapl:1", "package-0-die-1", "500");
  tree.add("intel-rapl:2", "package-1-die-0", "500");
  tree.add("intel-rapl:3", "package-1-die-1", "800000");
  const auto rapl = open_rapl(tree.path, 0).source;
  REQUIRE(rapl);
  for (const char* zone : {"intel-rapl:0", "intel-rapl:1", "intel-rapl:2"})
    tree.set(zone, "1000500");
  tree.set("intel-rapl:3", "4800000");
  CHECK(rapl->advance(1).joules == 6);
}

TEST_CASE("only intel-rapl-mmio is there: it is counted", "[energy]") {
  const Powercap tree;
  tree.add("intel-rapl-mmio:0", "package-0", "0");
  const auto rapl = open_rapl(tree.path, 0).source;
  REQUIRE(rapl);
  tree.set("intel-rapl-mmio:0", "3000000");
  CHECK(rapl->advance(1).joules == 3);
}

TEST_CASE("a counter that only root may read is one clear reason and no figure", "[energy]") {
  if (!Stranger::possible()) return;
  const Powercap tree;
  tree.add("intel-rapl:0", "package-0", "1");
  std::vector<EnergyUse> uses;
  {
    const Stranger stranger(tree.path, tree.zone("intel-rapl:0") / "energy_uj");
    EnergyMeter meter({.root = tree.path, .gpus = {}, .enter = {}});
    uses = meter.take();
  }
  REQUIRE(uses.size() == 1);
  CHECK(uses[0].source == "RAPL");
  CHECK_FALSE(uses[0].joules.has_value());
  CHECK(uses[0].seconds == 0);
  CHECK_THAT(uses[0].why, Contains("intel-rapl:0/energy_uj") && Contains("Permission denied"));
}

TEST_CASE("a counter that cannot be read for a while leaves that time out", "[energy]") {
  const Powercap tree;
  tree.add("intel-rapl:0", "package-0", "0");
  const auto rapl = open_rapl(tree.path, 0).source;
  REQUIRE(rapl);
  tree.set("intel-rapl:0", "torn");
  Consumed got = rapl->advance(10);
  CHECK(got.seconds == 0);
  CHECK_THAT(got.lost, Contains("energy_uj: 'torn' is no number"));
  tree.set("intel-rapl:0", "900");
  CHECK(rapl->advance(20).seconds == 0);
  tree.set("intel-rapl:0", "2000900");
  got = rapl->advance(21);
  CHECK(got.joules == 2);
  CHECK(got.seconds == 1);
}

TEST_CASE("a machine without counters says where they would be", "[energy]") {
  const Folder empty("machine");
  CHECK_THAT(open_rapl(empty.path, 0).why, Contains("there is no") && Contains("powercap"));
  CHECK_THAT(open_pm_counters(empty.path, 0).why, Contains("there is no"));
  fs::create_directories(empty.path / "sys/class/powercap/dtpm");
  CHECK_THAT(open_rapl(empty.path, 0).why, Contains("has no package"));
  CHECK_THAT(open_nvml({"0000:17:00.0"}, 0, "libno-such-nvml.so").why,
             Contains("NVML cannot be loaded") && Contains("libno-such-nvml.so"));
  EnergyMeter meter({.root = empty.path, .gpus = {}, .enter = {}});
  const std::vector<EnergyUse> uses = meter.take();
  REQUIRE(uses.size() == 1);
  CHECK_FALSE(uses[0].joules.has_value());
  CHECK_THAT(uses[0].why, Contains("powercap") && Contains("pm_counters"));
}

TEST_CASE("pm_counters count joules between fresh samples of one generation", "[energy]") {
  const Cray node;
  node.sample(29, 100, 1000);
  const auto [counters, why] = open_pm_counters(node.path, 0);
  REQUIRE(counters);
  node.sample(29, 200, 4500);
  Consumed got = counters->advance(10);
  CHECK(got.joules == 3500);
  CHECK(got.seconds == 10);
  CHECK(got.lost.empty());

  SECTION("a changed generation drops what came before it") {
    node.sample(30, 300, 9000);
    got = counters->advance(20);
    CHECK(got.joules == 0);
    CHECK(got.seconds == 0);
    CHECK_THAT(got.lost, Contains("generation changed from 29 to 30 in 10.0 s"));
    node.sample(30, 400, 9100);
    got = counters->advance(30);
    CHECK(got.joules == 100);
    CHECK(got.seconds == 10);
  }
  SECTION("counters that stand still are not zero joules, and nothing is lost when they continue") {
    CHECK(counters->advance(11).seconds == 0);
    CHECK(counters->advance(11.5).lost.empty());
    got = counters->advance(15);
    CHECK(got.seconds == 0);
    CHECK_THAT(got.lost, Contains("stand still"));
    node.sample(29, 300, 5000);
    got = counters->advance(20);
    CHECK(got.joules == 500);
    CHECK(got.seconds == 10);
  }
  SECTION("a counter that began again is not a jump back") {
    node.sample(29, 1, 50);
    CHECK_THAT(counters->advance(20).lost, Contains("began again"));
    node.sample(29, 2, 60);
    CHECK(counters->advance(21).joules == 10);
  }
}

TEST_CASE("a meter takes pm_counters before RAPL, and each joule once", "[energy]") {
  const Powercap tree;
  tree.add("intel-rapl:0", "package-0", "0");
  const auto cray = [&](int freshness, int joules) {
    const fs::path folder = tree.path / "sys/cray/pm_counters";
    write_file(folder / "generation", "1\n");
    write_file(folder / "freshness", std::to_string(freshness) + "\n");
    write_file(folder / "energy", std::to_string(joules) + " J 1 us\n");
  };
  cray(1, 100);
  // The thread looks all the time: what it finds and what take() finds add up.
  EnergyMeter meter({.root = tree.path, .gpus = {}, .enter = {}, .every_s = 0.001});
  tree.set("intel-rapl:0", "999000");
  double sum = 0;
  for (int i = 1; i <= 20; ++i) {
    // The energy comes last, as in a sample whose other files are already new.
    write_file(tree.path / "sys/cray/pm_counters/energy", std::to_string(100 + i) + " J 1 us\n");
    write_file(tree.path / "sys/cray/pm_counters/freshness", std::to_string(1 + i) + "\n");
    for (const EnergyUse& use : meter.take()) {
      CHECK(use.source == "pm_counters");
      sum += use.joules.value_or(0);
    }
  }
  CHECK(sum == 20);
}
