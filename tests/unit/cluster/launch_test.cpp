#include <catch2/catch.hpp>

#include "tests/unit/cluster/launch_fixture.hpp"

using namespace lockstep::test::launches;

TEST_CASE("each launcher's own variables say who a rank is") {
  struct Row {
    const char* what;
    Variables variables;
    Expected expected;
  };
  const Row rows[] = {
      {"nothing", {}, {Authority::alone, 0, 1, 0, 1}},
      {"Open MPI", open_mpi, {Authority::open_mpi, 3, 4, 1, 2}},
      {"Slurm, uneven nodes", slurm, {Authority::slurm, 6, 7, 0, 1}},
      {"Slurm, a middle node",
       with(slurm, {{"SLURM_NODEID", "1"}, {"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}}),
       {Authority::slurm, 3, 7, 1, 2}},
      {"mpirun on the batch host", with(open_mpi, batch_script), {Authority::open_mpi, 3, 4, 1, 2}},
      {"mpirun on another node", with(open_mpi, orted), {Authority::open_mpi, 3, 4, 1, 2}},
      {"batch script", batch_script, {Authority::alone, 0, 1, 0, 1}},
      {"interactive step's shell",
       with(slurm, {{"SLURM_STEP_ID", "4294967290"}}),
       {Authority::alone, 0, 1, 0, 1}},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const Expected& e = row.expected;
    require_identity(cluster::identify(lookup(row.variables), std::nullopt), e);
    const MpiWorld mpi{e.rank, e.world, e.local_rank, e.local_size};
    require_identity(cluster::identify(lookup(row.variables), mpi), e);
  }
}

TEST_CASE("ranks of one machine may be counted together or by container, but not otherwise") {
  Variables both = with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  const MpiWorld of_container{
      .rank = 3, .world = 4, .local_rank = 0, .local_size = 1, .machine_size = 4};
  CHECK(cluster::identify(lookup(both), of_container).local_size == 4);
  const std::string fault = "counts the ranks of this node as 1";
  MpiWorld fewer = of_container;
  fewer.machine_size = 3;
  CHECK_THROWS_WITH(cluster::identify(lookup(both), fewer), Contains(fault));
  fewer.machine_size = 1;
  CHECK_THROWS_WITH(cluster::identify(lookup(both), fewer), Contains(fault));
  both["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  fewer.local_size = 3, fewer.machine_size = 4;
  CHECK_THROWS_WITH(cluster::identify(lookup(both), fewer), Contains("as 3"));
}

TEST_CASE("a variable by which ranks yield without end is named, with what lockstep does") {
  const auto said = [](const Variables& variables) {
    return cluster::describe_endless_yields(lookup(variables));
  };
  const std::string asked = "OMPI_MCA_mpi_yield_when_idle", implied = "OMPI_MCA_mpi_oversubscribe";
  CHECK(said(open_mpi).empty());
  for (const char* yes : {"1", "true", "YES"})
    CHECK_THAT(said({{asked, yes}}), Contains(asked + "=" + yes) &&
                                         Contains("stops for many seconds") &&
                                         Contains("lockstep switches that off"));
  for (const char* no : {"0", "false", "No", ""})
    CHECK(said({{asked, no}, {implied, "1"}}).empty());
  CHECK_THAT(said({{implied, "1"}}), Contains(implied + "=1") && Contains("mpirun sets it"));
  CHECK(said({{implied, "0"}}).empty());
}

TEST_CASE("the host comes from the kernel, not from $HOSTNAME") {
  CHECK(cluster::identify(lookup(slurm), std::nullopt).host != "not-this-one");
}

TEST_CASE("under mpirun inside a job Slurm's variables are ignored, with the reason") {
  const auto on_batch_host =
      cluster::identify(lookup(with(open_mpi, batch_script)), std::nullopt).ignored;
  REQUIRE(on_batch_host.size() == 1);
  CHECK_THAT(on_batch_host[0], Contains("SLURM_PROCID=0") && Contains("batch script"));
  const auto elsewhere = cluster::identify(lookup(with(open_mpi, orted)), std::nullopt).ignored;
  REQUIRE(elsewhere.size() == 1);
  CHECK_THAT(elsewhere[0], Contains("SLURM_PROCID=0") && Contains("daemon"));
  const auto script = cluster::identify(lookup(batch_script), std::nullopt).ignored;
  REQUIRE(script.size() == 1);
  CHECK_THAT(script[0], Contains("SLURM_NTASKS=4"));
  CHECK(cluster::identify(lookup(open_mpi), std::nullopt).ignored.empty());
  CHECK(cluster::identify(lookup(slurm), std::nullopt).ignored.empty());
}

TEST_CASE("junk in a launcher's variable is an error with its name and value") {
  for (const char* junk : {"", " 1", "1 ", "+1", "-1", "0x1", "1.0", "one", "1,2", "4294967296",
                           "99999999999999999999999"}) {
    INFO(junk);
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"})
      CHECK_THAT(refusal(with(open_mpi, {{name, junk}})), Contains(std::string(name) + "=" + junk));
    for (const char* name :
         {"SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID"})
      CHECK_THAT(refusal(with(slurm, {{name, junk}})), Contains(std::string(name) + "=" + junk));
  }
  for (const char* junk : {"", ",", "2(x3", "2(x)", "(x3),1", "2(x3),", "2(x3) ,1", "2x3"}) {
    INFO(junk);
    CHECK_THAT(refusal(with(slurm, {{"SLURM_STEP_TASKS_PER_NODE", junk}})),
               Contains(std::string("SLURM_STEP_TASKS_PER_NODE=") + junk));
  }
}

TEST_CASE("a missing companion is an error that names it") {
  for (const auto& [name, value] : open_mpi)
    if (name != "PMIX_RANK")
      CHECK_THAT(refusal(less(open_mpi, name)), Contains(name + " is missing"));
  for (const char* name : {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID",
                           "SLURM_STEP_TASKS_PER_NODE"})
    CHECK_THAT(refusal(less(slurm, name)), Contains(std::string(name) + " is missing"));
}

TEST_CASE("numbers that cannot belong to one launch are an error with both values") {
  CHECK_THAT(refusal(with(open_mpi, {{"OMPI_COMM_WORLD_RANK", "4"}})),
             Contains("OMPI_COMM_WORLD_RANK=4") && Contains("OMPI_COMM_WORLD_SIZE=4"));
  CHECK_THAT(refusal(with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}})),
             Contains("LOCAL_RANK=2") && Contains("LOCAL_SIZE=2"));
  CHECK_THAT(refusal(with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "5"}})),
             Contains("LOCAL_SIZE=5") && Contains("WORLD_SIZE=4"));
  CHECK_THAT(refusal(with(slurm, {{"SLURM_PROCID", "7"}})),
             Contains("SLURM_PROCID=7") && Contains("SLURM_STEP_NUM_TASKS=7"));
  CHECK_THAT(refusal(with(slurm, {{"SLURM_NODEID", "4"}})),
             Contains("SLURM_NODEID=4") && Contains("2(x3),1 has 4 nodes"));
}

TEST_CASE("a launcher that contradicts MPI is an error with both values and the line to change") {
  CHECK_THAT(refusal(slurm, MpiWorld{0, 1, 0, 1}),
             Contains("SLURM_STEP_NUM_TASKS says 7") && Contains("a world of 1") &&
                 Contains("--mpi=none") && Contains("srun --mpi=pmix"));
  CHECK_THAT(refusal(with(slurm, {{"SLURM_MPI_TYPE", "pmi2"}}), MpiWorld{0, 1, 0, 1}),
             Contains("--mpi=pmi2"));
  CHECK_THAT(refusal(open_mpi, MpiWorld{0, 1, 0, 1}), Contains("OMPI_COMM_WORLD_SIZE says 4") &&
                                                          Contains("a world of 1") &&
                                                          Contains("mpirun"));
  CHECK_THAT(refusal(open_mpi, MpiWorld{2, 4, 1, 2}),
             Contains("OMPI_COMM_WORLD_RANK says 3") && Contains("rank 2"));
  CHECK_THAT(refusal(open_mpi, MpiWorld{3, 4, 3, 4}),
             Contains("OMPI_COMM_WORLD_LOCAL_SIZE says 2") && Contains("as 4"));
}

TEST_CASE("local ranks may be numbered in another order than MPI's") {
  require_identity(cluster::identify(lookup(open_mpi), MpiWorld{3, 4, 0, 2}),
                   {Authority::open_mpi, 3, 4, 1, 2});
}

TEST_CASE("MPI is believed under a launcher that lockstep does not know") {
  require_identity(cluster::identify(lookup({{"PMI_RANK", "2"}}), MpiWorld{2, 4, 0, 2}),
                   {Authority::mpi, 2, 4, 0, 2});
}
