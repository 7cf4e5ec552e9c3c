#include <catch2/catch.hpp>

#include <ctime>
#include <map>
#include <string>

#include "lockstep/cluster/walltime.hpp"

using namespace lockstep::cluster;

namespace {

std::optional<double> left(const std::map<std::string, std::string, std::less<>>& variables) {
  return allocation_left_s([&](std::string_view name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

}  // namespace

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
