#include <catch2/catch.hpp>

#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "lockstep/cluster/identity/ask_slurm.hpp"
#include "lockstep/cluster/identity/walltime.hpp"

using namespace lockstep::cluster;

namespace {

using cluster::Variables;

EnvLookup among(const Variables& variables) {
  return [&variables](std::string_view name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::optional<double> left(const Variables& variables) {
  return allocation_left_s(among(variables));
}

std::string job_of(const Variables& variables) { return slurm_job(among(variables)); }

}  // namespace

TEST_CASE("mpirun kills a second after SIGTERM, or as long after it as it was told", "[walltime]") {
  const auto patience_s = [](const Variables& variables) {
    return mpirun_patience_s(among(variables));
  };
  CHECK(patience_s({{"OMPI_COMM_WORLD_RANK", "0"}}) == 1.0);
  CHECK(patience_s({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_MCA_odls_base_sigkill_timeout", "60"}}) ==
        60.0);
  CHECK(patience_s({{"OMPI_MCA_odls_base_sigkill_timeout", "60"}}) == std::nullopt);
}

TEST_CASE("the time that squeue says is left is read in all its forms", "[walltime]") {
  CHECK(read_time_left("1-02:03:04") == 93784);
  CHECK(read_time_left("2:03:04") == 7384);
  CHECK(read_time_left("03:04") == 184);
  CHECK(read_time_left("0:00") == 0);
  for (const char* none :
       {"UNLIMITED", "INVALID", "NOT_SET", "", ":", "1:2:3:4", "1-", "-1:00", "1:", "1x:00"})
    CHECK_FALSE(read_time_left(none));
}

TEST_CASE("an allocation's end is Slurm's own, and there is none outside a job", "[walltime]") {
  CHECK_FALSE(left({}));
  CHECK_FALSE(left({{"SLURM_JOB_ID", "12; reboot"}, {"SLURM_JOB_END_TIME", "99"}}));
  const std::time_t before = std::time(nullptr);
  const auto soon =
      left({{"SLURM_JOB_ID", "12"}, {"SLURM_JOB_END_TIME", std::to_string(before + 100)}});
  REQUIRE(soon);
  CHECK((*soon <= 100 && *soon >= 100 - std::difftime(std::time(nullptr), before)));
}

TEST_CASE("a clock that differs from Slurm's ends no job at once and makes no limit longer",
          "[walltime]") {
  const auto now = static_cast<long>(std::time(nullptr));
  const auto at = [&](long start_s, long end_s) {
    return left({{"SLURM_JOB_ID", "12"},
                 {"SLURM_JOB_START_TIME", std::to_string(now + start_s)},
                 {"SLURM_JOB_END_TIME", std::to_string(now + end_s)}});
  };
  CHECK_FALSE(at(-3600, -1800));  // an hour ahead, of a job of half an hour
  CHECK(at(3600, 5400) == 1800);  // an hour late
  CHECK(at(-900, 900).value() > 800);
}

TEST_CASE("a job is named by its number, and a task of an array as the array's task", "[slurm]") {
  CHECK(job_of({}) == "");
  CHECK(job_of({{"SLURM_JOB_ID", "12"}}) == "12");
  // The last task has the array's own number.
  CHECK(job_of(
            {{"SLURM_JOB_ID", "12"}, {"SLURM_ARRAY_JOB_ID", "12"}, {"SLURM_ARRAY_TASK_ID", "3"}}) ==
        "12_3");
  CHECK(job_of(
            {{"SLURM_JOB_ID", "14"}, {"SLURM_ARRAY_JOB_ID", "12"}, {"SLURM_ARRAY_TASK_ID", "1"}}) ==
        "12_1");
  CHECK(job_of({{"SLURM_ARRAY_JOB_ID", "12"}, {"SLURM_ARRAY_TASK_ID", "1"}}) == "");
}

TEST_CASE("nothing but a job's name is given to a shell", "[slurm]") {
  for (const char* job : {"12", "12_0", "4294901756_10"}) CHECK(is_slurm_job(job));
  for (const char* job : {"", "_", "12_", "_3", "12; reboot", "12_3 ", "12_[0-2]", "12+1", "-1"})
    CHECK_FALSE(is_slurm_job(job));
  CHECK(job_of({{"SLURM_JOB_ID", "12; reboot"}}) == "");
  CHECK(job_of({{"SLURM_JOB_ID", "12"},
                {"SLURM_ARRAY_JOB_ID", "12"},
                {"SLURM_ARRAY_TASK_ID", "$(reboot)"}}) == "");
}

TEST_CASE("of the lines of an array only those of the task count", "[slurm]") {
  const std::vector<std::vector<std::string>> lines = {{"12", "12_2", "RUNNING"},
                                                       {"14", "12_1", "PREEMPTED"},
                                                       {"14", "12_1", "COMPLETED"},
                                                       {"13", "12_0", "TIMEOUT"},
                                                       {"broken"}};
  const auto states = [&](const std::string& job) {
    std::string all;
    for (const auto& line : lines_of_job(lines, job)) all += line.at(0) + " ";
    return all;
  };
  CHECK(states("12_2") == "RUNNING ");
  CHECK(states("12") == "RUNNING ");  // the number of its last task, in older records
  CHECK(states("12_1") == "PREEMPTED COMPLETED ");
  CHECK(states("13") == "TIMEOUT ");
  CHECK(states("15") == "");
}
