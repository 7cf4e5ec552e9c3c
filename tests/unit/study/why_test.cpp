#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/study/why/why.hpp"

using namespace lockstep;
using namespace lockstep::study;
using Catch::Matchers::Contains;

namespace {

EndEvidence begun(const std::string& status = "", const std::string& reason = "") {
  EndEvidence evidence;
  evidence.start.emplace();
  evidence.steps = 40;
  evidence.checkpoint = "run/checkpoints/step-00000030.h5";
  if (!status.empty()) evidence.end = {.status = status, .reason = reason, .steps = 41};
  return evidence;
}

EndEvidence told(const std::vector<std::string>& reasons) {
  EndEvidence evidence = begun();
  for (const std::string& reason : reasons) evidence.post_mortems.push_back({reason});
  return evidence;
}

RunEnding ending(const EndEvidence& evidence, const std::string& slurm = "") {
  return why_it_ended(evidence, slurm).ending;
}

const std::string lost =
    "1 of 4 ranks missing: rank 3 on n2 (its process has ended, last in step 7, backward)";

}  // namespace

TEST_CASE("a run's own last word is how it ended", "[why]") {
  CHECK(ending(begun("finished")) == RunEnding::finished);
  CHECK(ending(begun("stopped", "a signal")) == RunEnding::stopped);
  CHECK(ending(begun("stopped", "stop-after")) == RunEnding::stopped);
  CHECK(ending(begun("stopped", "a signal"), "PREEMPTED") == RunEnding::preempted);
  CHECK(ending(begun("stopped", "the allocation ends soon")) == RunEnding::out_of_time);
  CHECK(ending(begun("diverged", "the loss is nan after step 3: training diverged")) ==
        RunEnding::diverged);
  const std::pair<const char*, RunEnding> failures[] = {
      {"run/metrics.jsonl cannot be written: No space left on device", RunEnding::disk_full},
      {"std::bad_alloc", RunEnding::out_of_memory},
      {"ranks diverged at step 5: the state's hash is 0 on rank 1", RunEnding::disagreement},
      {"train/a.h5: row 7: its checksum is wrong", RunEnding::bad_data},
      {"step 7, bucket 2: does the file system of the run answer?", RunEnding::file_system},
      {"something else", RunEnding::unknown}};
  for (const auto& [reason, is] : failures) {
    CAPTURE(reason);
    CHECK(ending(begun("failed", reason)) == is);
    CHECK(why_it_ended(begun("failed", reason), "").what == reason);
  }
}

TEST_CASE("of what ranks report, the most certain cause counts", "[why]") {
  CHECK(ending(told({lost})) == RunEnding::lost_rank);
  CHECK(ending(told({lost}), "OUT_OF_MEMORY") == RunEnding::out_of_memory);
  CHECK(ending(told({lost}), "NODE_FAIL") == RunEnding::lost_rank);
  EndEvidence short_of_memory = told({lost});
  short_of_memory.post_mortems[0].memory_kills = 1;
  CHECK(ending(short_of_memory) == RunEnding::out_of_memory);
  CHECK(ending(told({lost}), "FAILED") == RunEnding::lost_rank);
  CHECK(ending(told({lost,
                     "the network between n1 (rank 0) and n2 (rank 2) is broken: they do not "
                     "reach each other"})) == RunEnding::network);
  CHECK(ending(told({"the others wait for rank 1 on n1 (in step 3, data for 30 s)"})) ==
        RunEnding::stuck);
  EndEvidence asleep = told({"the others wait for rank 1 on n1 (in step 3, data for 30 s)"});
  asleep.post_mortems[0].troubles = {
      "rank 1 on n1: it is in disk sleep: it waits for a file system or a device"};
  asleep.post_mortems[0].leave_out = "n1";
  CHECK(ending(asleep) == RunEnding::file_system);
  CHECK_THAT(why_it_ended(asleep, "").advice, Contains("start it without n1"));
}

TEST_CASE("two ranks that report each other as silent were cut off by the network", "[why]") {
  EndEvidence both = told({"2 of 4 ranks missing: rank 2 on n2 (silent for 21 s), rank 3 on n2",
                           "2 of 4 ranks missing: rank 0 on n1 (silent for 21 s), rank 1 on n1"});
  both.post_mortems[0].missing = {2, 3};
  both.post_mortems[1].missing = {0, 1};
  both.post_mortems[1].told_by = 2;
  CHECK(ending(both) == RunEnding::network);
  CHECK_THAT(why_it_ended(both, "").what, Contains("ranks 0 and 2"));
  EndEvidence continued = both;
  continued.post_mortems[0].troubles = {"rank 2 on n1: it is stopped"};
  CHECK(ending(continued) == RunEnding::lost_rank);
  both.post_mortems[1].missing = {1};
  CHECK(ending(both) == RunEnding::lost_rank);
}

TEST_CASE("a run that left no word was killed, unless Slurm knows more", "[why]") {
  CHECK(ending(begun()) == RunEnding::killed);
  CHECK(ending(begun(), "CANCELLED by 0") == RunEnding::killed);
  CHECK(ending(begun(), "TIMEOUT") == RunEnding::out_of_time);
  CHECK(ending(begun(), "NODE_FAIL") == RunEnding::lost_rank);
  CHECK(ending(EndEvidence{}) == RunEnding::never_began);
  EndEvidence held = begun();
  held.held_since_ms = 0;
  CHECK(ending(held) == RunEnding::running);
  held.last_ms = 7'500;
  held.post_mortems = {{.reason = "1 of 2 ranks missing: rank 1 on n1", .before_ms = 8'000}};
  CHECK(ending(held) == RunEnding::lost_rank);  // its process is still there, but ends
  held.held_since_ms = 8'000;
  CHECK(ending(held) == RunEnding::running);  // a newer start has not written its first record
  held.held_since_ms = 6'000;
  held.last_ms = 8'000;
  CHECK(ending(held) == RunEnding::running);
  CHECK(why_it_ended(held, "").advice.empty());
}

TEST_CASE("a run whose lock cannot be asked may still run, unless something says how it ended",
          "[why]") {
  EndEvidence hidden = begun();
  hidden.lock_fault = "run/.lock: Permission denied";
  const Why why = why_it_ended(hidden, "");
  CHECK(why.ending == RunEnding::unknown);
  CHECK_THAT(why.what, Contains("whether it still runs is not known: run/.lock: Permission"));
  CHECK_THAT(why.advice, !Contains("resume"));
  CHECK(ending(hidden, "NODE_FAIL") == RunEnding::lost_rank);
  hidden.post_mortems.push_back({lost});
  CHECK(ending(hidden) == RunEnding::lost_rank);
  hidden.post_mortems.clear();
  hidden.end = begun("finished").end;
  CHECK(ending(hidden) == RunEnding::finished);
  EndEvidence new_one;
  new_one.lock_fault = hidden.lock_fault;
  CHECK(ending(new_one) == RunEnding::unknown);
}

TEST_CASE("where a checkpoint is, the advice ends with how to resume; not where it would diverge",
          "[why]") {
  CHECK_THAT(why_it_ended(begun(), "").advice,
             Contains("--resume auto continues from run/checkpoints/step-00000030.h5"));
  CHECK_THAT(why_it_ended(begun("finished"), "").advice, !Contains("resume"));
  CHECK_THAT(why_it_ended(begun("diverged", "training diverged"), "").advice,
             !Contains("--resume auto"));
}
