#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include "lockstep/base/error.hpp"
#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/cluster/identity/walltime.hpp"

namespace lockstep::test::launches {

using namespace lockstep;
using Catch::Matchers::Contains;
using cluster::Authority;
using cluster::MpiWorld;
using cluster::RankInfo;

using cluster::Variables;

inline cluster::EnvLookup lookup(const Variables& variables) {
  return [variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

inline Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

inline Variables less(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

inline const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"PMIX_RANK", "3"}};
inline const Variables slurm{{"SLURM_JOB_ID", "7"},       {"SLURM_STEP_ID", "0"},
                             {"SLURM_PROCID", "6"},       {"SLURM_STEP_NUM_TASKS", "7"},
                             {"SLURM_LOCALID", "0"},      {"SLURM_NODEID", "3"},
                             {"SLURM_NTASKS", "7"},       {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                             {"HOSTNAME", "not-this-one"}};
/// The variables in the batch script of a job of 4 tasks.
inline const Variables batch_script{
    {"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NTASKS", "4"}};
/// The variables that mpirun's daemon on another node of that job passes to its ranks.
inline const Variables orted{{"SLURM_JOB_ID", "7"},  {"SLURM_STEP_ID", "0"},
                             {"SLURM_PROCID", "0"},  {"SLURM_STEP_NUM_TASKS", "1"},
                             {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"},
                             {"SLURM_NTASKS", "1"},  {"SLURM_STEP_TASKS_PER_NODE", "1"}};

struct Expected {
  Authority authority;
  int rank, world, local_rank, local_size;
};

inline void require_identity(const RankInfo& info, const Expected& expected) {
  CHECK(info.authority == expected.authority);
  CHECK(info.rank == expected.rank);
  CHECK(info.world == expected.world);
  CHECK(info.local_rank == expected.local_rank);
  CHECK(info.local_size == expected.local_size);
}

inline std::string refusal(const Variables& variables, std::optional<MpiWorld> mpi = std::nullopt) {
  try {
    cluster::identify(lookup(variables), mpi);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace lockstep::test::launches
