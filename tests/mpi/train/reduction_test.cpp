#include "train/decide/decide.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <memory>

#include "lockstep/base/error.hpp"
#include "lockstep/reduce/buckets.hpp"
#include "tests/mpi/comm/pretended_nodes.hpp"
#include "tests/mpi/train/train_fixture.hpp"
#include "tests/support/harness/mpi_world.hpp"

using namespace lockstep;
using namespace lockstep::train;
using config::AllReduceChoice;
using lockstep::test::blocks;
using lockstep::test::on_every_rank;
using lockstep::test::small_trainer;
using lockstep::test::with_no_more_files;
using lockstep::test::world;

namespace {

/// What this world's ranks decide on pretended nodes.
struct Fixture {
  std::unique_ptr<comm::Communicator> flat = test::make_communicator(30);
  comm::Control* control = test::make_control(30);
  int ranks = world().facts().world;
  comm::Nodes one_node = blocks({ranks});
  comm::Nodes two_nodes = ranks > 2 ? blocks({ranks - ranks / 2, ranks / 2}) : one_node;
  std::optional<ResumePoint> resume;
  config::Config::Comm asked;

  ReductionSetting on(const comm::Nodes& nodes, bool on_host = true) {
    return {
        .flat = *flat, .control = *control, .nodes = nodes, .on_host = on_host, .resume = resume};
  }
  /// Resumes from a checkpoint of as many replicas with this configuration.
  void resume_from(const config::Config& before) {
    resume.emplace();
    resume->header.config = config::to_toml(before);
    resume->header.replicas = static_cast<std::uint64_t>(ranks);
  }
  /// The sum's algorithm, decided on these nodes; it has its communicator on every rank.
  AllReduceChoice all_reduce(const ReductionSetting& setting) {
    const AllReduce decided = choose_all_reduce(asked, setting);
    const bool over_two = decided.choice == AllReduceChoice::two_level;
    CHECK(on_every_rank((decided.two_level != nullptr) == over_two));
    return decided.choice;
  }
  /// A bucket's size, decided on these nodes.
  float bucket_mb(const ReductionSetting& setting) {
    return choose_bucket_mb(asked, setting, *flat, small_trainer(1).network);
  }
};

}  // namespace

TEST_CASE("sums go over two levels where nodes have them, else flat", "[mpi][reduction]") {
  Fixture f;
  CHECK(f.all_reduce(f.on(f.two_nodes)) ==
        (f.ranks > 2 ? AllReduceChoice::two_level : AllReduceChoice::flat));
  CHECK(f.all_reduce(f.on(f.one_node)) == AllReduceChoice::flat);
  CHECK(f.all_reduce(f.on(f.two_nodes, false)) == AllReduceChoice::flat);
  f.asked.all_reduce = AllReduceChoice::two_level;
  CHECK_THROWS_AS(choose_all_reduce(f.asked, f.on(f.two_nodes, false)), InputError);
}

TEST_CASE(
    "a run that began flat, also before there were two levels, stays flat on as many replicas",
    "[mpi][reduction]") {
  Fixture f;
  for (const AllReduceChoice then : {AllReduceChoice::flat, AllReduceChoice::automatic}) {
    config::Config before;
    before.comm.all_reduce = then;
    f.resume_from(before);
    CHECK(f.all_reduce(f.on(f.two_nodes)) == AllReduceChoice::flat);
    f.resume->header.replicas += 1;
    CHECK((f.all_reduce(f.on(f.two_nodes)) == AllReduceChoice::two_level) == (f.ranks > 2));
  }
}

TEST_CASE("where ranks cannot share memory, sums are flat, unless two levels were asked for",
          "[mpi][reduction]") {
  Fixture f;
  if (f.ranks < 3) return;
  const bool stricken = f.flat->rank() == f.ranks - 1;
  bool flat = false, refused = false;
  with_no_more_files(stricken, [&] {
    const AllReduce now = choose_all_reduce(f.asked, f.on(f.two_nodes));
    flat = now.choice == AllReduceChoice::flat && now.two_level == nullptr;
    f.asked.all_reduce = AllReduceChoice::two_level;
    try {
      choose_all_reduce(f.asked, f.on(f.two_nodes));
    } catch (const InputError& error) {
      const std::string said = error.what();
      refused = said.starts_with("comm.all-reduce = two-level: ") &&
                said.find("rank " + std::to_string(f.ranks - 1) + ": ") != std::string::npos;
    }
  });
  CHECK(on_every_rank(flat));
  CHECK(on_every_rank(refused));
}

TEST_CASE("buckets are of 1 MB on one node, of 25 on GPUs, and measured on several nodes",
          "[mpi][reduction]") {
  Fixture f;
  CHECK(f.bucket_mb(f.on(f.one_node)) == 1);
  CHECK(f.bucket_mb(f.on(f.two_nodes, false)) == 25);
  const float measured = f.bucket_mb(f.on(f.two_nodes));
  CHECK(std::count(std::begin(reduce::bucket_sizes_mb), std::end(reduce::bucket_sizes_mb),
                   measured) == 1);
  const auto most = static_cast<float>(f.control->max({measured}, "buckets")[0]);
  CHECK(on_every_rank(measured == most));
  f.asked.bucket_mb = 3.5f;
  CHECK(f.bucket_mb(f.on(f.two_nodes)) == 3.5f);
}

TEST_CASE("a run that resumes on as many replicas keeps the size of its buckets",
          "[mpi][reduction]") {
  Fixture f;
  config::Config before;
  before.comm.bucket_mb = 3.5f;
  f.resume_from(before);
  CHECK(f.bucket_mb(f.on(f.one_node)) == 3.5f);
  CHECK(f.bucket_mb(f.on(f.two_nodes)) == 3.5f);
  CHECK(f.bucket_mb(f.on(f.two_nodes, false)) == 3.5f);
  f.resume->header.replicas += 1;
  CHECK(f.bucket_mb(f.on(f.one_node)) == 1);
}
