#include <catch2/catch.hpp>

#include "lockstep/cluster/identity/rendezvous.hpp"
#include "tests/unit/cluster/launch_fixture.hpp"

using namespace lockstep::test::launches;

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

TEST_CASE("a step whose nodes are not its job's first ones may wait for ever in Slurm's PMIx") {
  const auto doubt = [](const std::string& job, const std::string& in_step,
                        const Variables& more = {}) {
    const Variables variables = with(
        slurm, {{"PMIX_RANK", "6"}, {"SLURM_JOB_NODELIST", job}, {"SLURM_STEP_NODELIST", in_step}});
    return cluster::doubt_launch(lookup(with(variables, more)), {"Open MPI v5.0.7", true}, {});
  };
  const auto found = doubt("c[1-3]", "c[2-3]");
  REQUIRE(found);
  CHECK_FALSE(found->certain);
  CHECK_THAT(found->text, Contains("(c[2-3])") && Contains("job (c[1-3])") &&
                              Contains("SLURM_JOB_NODELIST='c[2-3]' srun"));
  CHECK(doubt("c[1-3]", "c[1,3]"));
  CHECK(doubt("c2", "c[2-3]"));
  for (const char* job : {"c[2-3]", "c2,c3", "c[2-4]", "", "c[2"})
    CHECK_FALSE(doubt(job, "c[2-3]"));
  CHECK_FALSE(doubt("c[1-3]", "c[2-3]", {{"SLURM_HET_SIZE", "2"}}));
  CHECK_FALSE(doubt("c[1-3]", "c3"));
  CHECK_FALSE(doubt("c[1-3]", "c[2"));
}

TEST_CASE("ranks of a program without MPI are in doubt under every launcher") {
  const cluster::MpiLibrary no_mpi{.name = "no MPI", .is_none = true};
  for (const Variables& variables : {open_mpi, slurm}) {
    const auto doubt = cluster::doubt_launch(lookup(variables), no_mpi, {});
    REQUIRE(doubt);
    CHECK(doubt->certain);
    CHECK_THAT(doubt->text, Contains("built without MPI"));
  }
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

TEST_CASE("a declared world takes precedence, an index alone declares none", "[launch]") {
  const Variables declared{{"LOCKSTEP_RANK", "2"}, {"LOCKSTEP_WORLD", "4"}};
  const Variables pod{{"JOB_COMPLETION_INDEX", "3"}, {"LOCKSTEP_WORLD", "4"}};
  const Variables trainer{{"PET_NODE_RANK", "1"}, {"PET_NNODES", "2"}};
  const auto identified = [](const Variables& variables) {
    return cluster::identify(lookup(variables), std::nullopt);
  };
  require_identity(identified(declared), {Authority::declared, 2, 4, 0, 1});
  require_identity(identified(with(slurm, declared)), {Authority::declared, 2, 4, 0, 1});
  require_identity(identified(pod), {Authority::declared, 3, 4, 0, 1});
  require_identity(identified(with(pod, declared)), {Authority::declared, 2, 4, 0, 1});
  require_identity(identified(trainer), {Authority::trainer, 1, 2, 0, 1});
  require_identity(identified({{"JOB_COMPLETION_INDEX", "3"}}), {Authority::alone, 0, 1, 0, 1});
  require_identity(identified({{"LOCKSTEP_RANK", "0"}, {"LOCKSTEP_WORLD", "1"}}),
                   {Authority::alone, 0, 1, 0, 1});
  require_identity(identified({{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}}),
                   {Authority::alone, 0, 1, 0, 1});
  CHECK_THAT(refusal({{"LOCKSTEP_WORLD", "4"}}), Contains("LOCKSTEP_RANK is missing"));
  CHECK_THAT(refusal({{"LOCKSTEP_RANK", "1"}}), Contains("LOCKSTEP_WORLD is missing"));
  CHECK_THAT(refusal(with(declared, {{"LOCKSTEP_RANK", "4"}})), Contains("not below"));
}

TEST_CASE("an address is HOST:PORT, and a file has the token", "[launch]") {
  const auto fault = [](const Variables& more) {
    const Variables all = with({{"LOCKSTEP_RANK", "1"},
                                {"LOCKSTEP_WORLD", "2"},
                                {"LOCKSTEP_MEET", "train-0.train:29500"},
                                {"LOCKSTEP_TOKEN_FILE", "/not/there"}},
                               more);
    const auto env = lookup(all);
    try {
      cluster::meeting_place(env, cluster::identify(env, std::nullopt));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(fault({}), Contains("/not/there: the token cannot be read"));
  for (const char* wrong : {"train-0", "train-0:", ":29500", "train-0:0", "train-0:70000", "a:b"})
    CHECK_THAT(fault({{"LOCKSTEP_MEET", wrong}}), Contains("expected HOST:PORT"));
  CHECK_THAT(fault({{"LOCKSTEP_TOKEN_FILE", ""}}), Contains("--token-file FILE"));
  CHECK_THAT(fault({{"LOCKSTEP_MEET", ""}}), Contains("--meet HOST:PORT"));
}
