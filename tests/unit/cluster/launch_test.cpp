#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/cluster/identity/yields.hpp"

namespace {

using namespace lockstep;
using Catch::Matchers::Contains;
using cluster::Authority;
using cluster::MpiWorld;
using cluster::RankInfo;

using Variables = std::map<std::string, std::string, std::less<>>;

cluster::EnvLookup lookup(const Variables& variables) {
  return [variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

Variables less(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_RANK", "3"}};
const Variables slurm{{"SLURM_JOB_ID", "7"},       {"SLURM_STEP_ID", "0"},
                      {"SLURM_PROCID", "6"},       {"SLURM_STEP_NUM_TASKS", "7"},
                      {"SLURM_LOCALID", "0"},      {"SLURM_NODEID", "3"},
                      {"SLURM_NTASKS", "7"},       {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                      {"HOSTNAME", "not-this-one"}};
/// The variables in the batch script of a job of 4 tasks.
const Variables batch_script{
    {"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NTASKS", "4"}};
/// The variables that mpirun's daemon on another node of that job passes to its ranks.
const Variables orted{{"SLURM_JOB_ID", "7"},  {"SLURM_STEP_ID", "0"},
                      {"SLURM_PROCID", "0"},  {"SLURM_STEP_NUM_TASKS", "1"},
                      {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"},
                      {"SLURM_NTASKS", "1"},  {"SLURM_STEP_TASKS_PER_NODE", "1"}};

struct Expected {
  Authority authority;
  int rank, world, local_rank, local_size;
};

void require_identity(const RankInfo& info, const Expected& expected) {
  CHECK(info.authority == expected.authority);
  CHECK(info.rank == expected.rank);
  CHECK(info.world == expected.world);
  CHECK(info.local_rank == expected.local_rank);
  CHECK(info.local_size == expected.local_size);
}

std::string refusal(const Variables& variables, std::optional<MpiWorld> mpi = std::nullopt) {
  try {
    cluster::identify(lookup(variables), mpi);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

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

TEST_CASE("an srun that MPI cannot join is seen before MPI_Init, and nothing else is") {
  const cluster::MpiLibrary debian{"Open MPI v4.1.4", true}, other{"Open MPI v4.1.4", false},
      mpich{"MPICH Version: 4.0.2", false};
  const Variables step =
      with(slurm,
           {{"SLURM_STEPID", "0"}, {"SLURM_NODELIST", "node[1-4]"}, {"SLURM_STEP_NUM_NODES", "4"}});
  const auto doubt = [](const Variables& variables, const cluster::MpiLibrary& library,
                        const std::vector<std::string>& types = {"none", "pmix", "pmi2"}) {
    return cluster::doubt_launch(lookup(variables), library, [types] { return types; });
  };
  const auto none = doubt(step, debian);
  REQUIRE(none);
  CHECK(none->certain);
  CHECK_THAT(none->text, Contains("--mpi=none") && Contains("offers none, pmix, pmi2") &&
                             Contains("srun --mpi=pmix -N 4 -n 7 lockstep"));
  const Variables by_pmi2 =
      with(step, {{"SLURM_MPI_TYPE", "pmi2"}, {"PMI_RANK", "6"}, {"PMI_SIZE", "7"}});
  CHECK_THAT(doubt(by_pmi2, debian)->text, Contains("--mpi=pmi2"));
  CHECK_FALSE(doubt(by_pmi2, other));
  CHECK_FALSE(doubt(step, other)->certain);
  CHECK_THAT(doubt(step, debian, {"none", "pmi2"})->text,
             Contains("no PMIx") && Contains("mpirun -np 7"));
  CHECK_THAT(doubt(step, debian, {"pmix_v4"})->text, Contains("srun --mpi=pmix_v4"));
  CHECK_THAT(doubt(step, debian, {})->text, Contains("srun --mpi=list"));
  CHECK_FALSE(doubt(step, mpich));
  CHECK_FALSE(doubt(with(step, {{"PMIX_RANK", "6"}}), debian));
  CHECK_FALSE(doubt({}, debian));
  CHECK_FALSE(doubt(open_mpi, debian));
  CHECK_FALSE(doubt(with(open_mpi, orted), debian));
  CHECK_FALSE(doubt(batch_script, debian));
}

TEST_CASE("the other launchers' variables say who a rank is, and MPI fills in the rest") {
  struct Row {
    const char* what;
    Variables variables;
    Authority authority;
    int local_rank, local_size;  // without MPI
  };
  const Variables hydra{{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}};
  const Row rows[] = {
      {"Flux",
       {{"FLUX_TASK_RANK", "2"}, {"FLUX_JOB_SIZE", "4"}, {"FLUX_TASK_LOCAL_ID", "0"}},
       Authority::flux,
       0,
       1},
      {"PALS",
       with(hydra, {{"PALS_RANKID", "2"}, {"PALS_LOCAL_RANKID", "0"}, {"PALS_LOCAL_SIZE", "2"}}),
       Authority::pals, 0, 2},
      {"Hydra", with(hydra, {{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}}), Authority::pmi,
       0, 2},
      {"Cray PMI", with(hydra, {{"PMI_LOCAL_RANK", "0"}, {"PMI_LOCAL_SIZE", "2"}}), Authority::pmi,
       0, 2},
      {"Hydra, through srun", with(orted, hydra), Authority::pmi, 0, 1},
      {"torchrun",
       {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}},
       Authority::torchrun,
       0,
       2},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    require_identity(cluster::identify(lookup(row.variables), std::nullopt),
                     {row.authority, 2, 4, row.local_rank, row.local_size});
    require_identity(cluster::identify(lookup(row.variables), MpiWorld{2, 4, 0, 2}),
                     {row.authority, 2, 4, 0, 2});
    CHECK(cluster::launched(lookup(row.variables)));
    CHECK_THAT(refusal(row.variables, MpiWorld{0, 1, 0, 1}),
               Contains("says 4") && Contains("a world of 1") && Contains("write"));
  }
}

TEST_CASE("srun --mpi=pmi2 stays Slurm's, whose variables say more") {
  const Variables step = with(slurm, {{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}});
  require_identity(cluster::identify(lookup(step), std::nullopt), {Authority::slurm, 6, 7, 0, 1});
}

TEST_CASE("torchrun's names in a process alone, and a rank without a world, decide nothing") {
  require_identity(cluster::identify(lookup({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), std::nullopt),
                   {Authority::alone, 0, 1, 0, 1});
  require_identity(cluster::identify(lookup({{"RANK", "3"}}), std::nullopt),
                   {Authority::alone, 0, 1, 0, 1});
  require_identity(cluster::identify(lookup({{"PMIX_RANK", "0"}}), MpiWorld{}),
                   {Authority::alone, 0, 1, 0, 1});
}

TEST_CASE("every claim is listed, with whether it counts") {
  const auto info =
      cluster::identify(lookup(with(open_mpi, with(orted, {{"RANK", "x"}, {"WORLD_SIZE", "2"}}))),
                        MpiWorld{3, 4, 1, 2});
  REQUIRE(info.claims.size() == 5);
  CHECK(info.claims[0].source == Authority::open_mpi);
  CHECK(info.claims[0].taken);
  CHECK(info.claims[1].source == Authority::slurm);
  CHECK(info.claims[1].rank == 0);
  CHECK_THAT(info.claims[1].why, Contains("daemon"));
  CHECK(info.claims[2].source == Authority::pmix);
  CHECK_THAT(info.claims[2].why, Contains("agrees with Open MPI"));
  CHECK(info.claims[3].source == Authority::torchrun);
  CHECK_FALSE(info.claims[3].rank);
  CHECK_THAT(info.claims[3].said, Contains("RANK=x, WORLD_SIZE=2"));
  CHECK(info.claims[4].source == Authority::mpi);
  for (std::size_t i = 1; i < info.claims.size(); ++i) CHECK_FALSE(info.claims[i].taken);
}

TEST_CASE("a world is joined only when a launcher made one") {
  CHECK(cluster::launched(lookup(open_mpi)));
  CHECK(cluster::launched(lookup(slurm)));
  CHECK(cluster::launched(lookup({{"PMI_RANK", "0"}})));
  CHECK_FALSE(cluster::launched(lookup({})));
  CHECK_FALSE(cluster::launched(lookup(batch_script)));
}

TEST_CASE("the recorded environments of a real cluster are read right") {
  const std::filesystem::path folder = "../shared/notes/launcher-environments";
  if (!std::filesystem::is_directory(folder)) {
    std::printf("SKIPPED: %s is not there\n", folder.c_str());
    return;
  }
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name == "README.md") continue;
    INFO(name);
    const std::string form = name.substr(0, name.find('.'));
    const bool task = form.starts_with("srun") || form.ends_with("mpirun");
    Expected expected{Authority::alone, 0, 1, 0, 1};
    if (task) {
      const int rank = name[form.size() + 1] - '0';
      const bool one_node = form == "bare-mpirun";
      expected = {form.starts_with("srun") ? Authority::slurm : Authority::open_mpi, rank, 4,
                  one_node ? rank : rank % 2, one_node ? 4 : 2};
    }
    Variables variables;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);)
      if (const auto equals = line.find('='); equals != line.npos)
        variables[line.substr(0, equals)] = line.substr(equals + 1);
    require_identity(cluster::identify(lookup(variables), std::nullopt), expected);
    CHECK(cluster::launched(lookup(variables)) == task);
    const bool no_pmix = form == "srun-none" || form == "srun-pmi2";
    const auto doubt = cluster::doubt_launch(lookup(variables), {"Open MPI v4.1.4", true}, {});
    CHECK((doubt && doubt->certain) == no_pmix);
    if (no_pmix) CHECK_THAT(refusal(variables, MpiWorld{0, 1, 0, 1}), Contains("srun --mpi=pmix"));
    ++files;
  }
  CHECK(files == 26);
}
