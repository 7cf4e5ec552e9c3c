#include <catch2/catch.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/observe/records.hpp"
#include "lockstep/study/why/why.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::study;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint64_t ended_ms = 10'000'000;

EndEvidence begun(const std::string& status = "", const std::string& reason = "") {
  EndEvidence evidence;
  evidence.start.emplace();
  evidence.steps = 40;
  evidence.last_ms = ended_ms;
  evidence.checkpoint = "run/checkpoints/step-00000030.h5";
  if (!status.empty())
    evidence.end = {.status = status, .reason = reason, .steps = 41, .time_ms = ended_ms};
  return evidence;
}

EndEvidence told(const std::vector<std::string>& reasons) {
  EndEvidence evidence = begun();
  for (const std::string& reason : reasons) evidence.post_mortems.push_back({reason});
  return evidence;
}

/// Slurm ended the job that long after the run.
SlurmWord slurm(const std::string& state, double after_s = 5) {
  const auto ms = static_cast<std::uint64_t>(static_cast<double>(ended_ms) + 1e3 * after_s);
  return {state, ms, ms};
}

RunEnding ending(const EndEvidence& evidence, const std::string& state = "") {
  return why_it_ended(evidence, slurm(state)).ending;
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
      {"weights: 1.20 GB do not fit into the GPU's memory: 0.50 of 80.00 GB are free",
       RunEnding::out_of_memory},
      {"a micro-batch of 256 rows needs 90.00 GB of the GPU's memory in all",
       RunEnding::out_of_memory},
      {"no host memory for a buffer of 1024 bytes [src/ports/cuda/device.cpp:128]",
       RunEnding::out_of_memory},
      {"runs/r was started again on n2 by job 7 while this start, generation 1, was still running: "
       "it ends and writes nothing more",
       RunEnding::superseded},
      {"ranks diverged at step 5: the state's hash is 0 on rank 1", RunEnding::disagreement},
      {"train/a.h5: row 7 is damaged: the CRC-32C of its pixels", RunEnding::bad_data},
      {"r/checkpoints/step-1.h5: this checkpoint is torn or was altered: its checksum does not fit",
       RunEnding::unknown},
      {"step 8, weights: rank 1 did not arrive within 8 s", RunEnding::stuck},
      {"step 8, weights: rank 1 stopped listening", RunEnding::stuck},
      {"step 8: nothing came for 8 s, though all ranks answer", RunEnding::network},
      {"step 44, bucket 0 of group nodes: rank 3 on n7 has gone", RunEnding::lost_rank},
      {"step 7, bucket 2: does the file system of the run answer?", RunEnding::file_system},
      {"something else", RunEnding::unknown}};
  for (const auto& [reason, is] : failures) {
    CAPTURE(reason);
    CHECK(ending(begun("failed", reason)) == is);
    CHECK(why_it_ended(begun("failed", reason), {}).what == reason);
  }
}

TEST_CASE("Slurm tells of a run only where it ended with its job", "[why]") {
  const EndEvidence stopped = begun("stopped", "a signal");
  for (const double hours_s : {-7200.0, 7200.0}) {
    CHECK(why_it_ended(stopped, slurm("TIMEOUT", hours_s)).ending == RunEnding::stopped);
    CHECK(why_it_ended(told({lost}), slurm("OUT_OF_MEMORY", hours_s)).ending ==
          RunEnding::lost_rank);
    CHECK(why_it_ended(begun(), slurm("TIMEOUT", hours_s)).ending == RunEnding::killed);
    CHECK_THAT(why_it_ended(begun(), slurm("CANCELLED by 0", hours_s)).what, !Contains("Slurm"));
  }
  CHECK(ending(stopped, "TIMEOUT") == RunEnding::out_of_time);
  CHECK(ending(stopped, "NODE_FAIL") == RunEnding::stopped);
  CHECK(why_it_ended(stopped, {"TIMEOUT", 0, 0}).ending == RunEnding::stopped);  // when, is unknown
  // A step may take minutes, of which the records of a run that is killed say nothing.
  CHECK(why_it_ended(begun(), slurm("TIMEOUT", 300)).ending == RunEnding::out_of_time);
  CHECK(why_it_ended(stopped, {"PREEMPTED", ended_ms - 300'000, ended_ms + 5'000}).ending ==
        RunEnding::preempted);
}

TEST_CASE("a run that failed because of a rank that is gone asks Slurm why that is", "[why]") {
  const EndEvidence gone = begun("failed", "step 44, bucket 0: rank 3 on n7 has gone");
  CHECK(ending(gone) == RunEnding::lost_rank);
  CHECK(ending(gone, "OUT_OF_MEMORY") == RunEnding::out_of_memory);
  CHECK(ending(begun("failed", "No space left on device"), "OUT_OF_MEMORY") ==
        RunEnding::disk_full);
}

TEST_CASE("a rank that has gone while all ranks were there has lost its connection", "[why]") {
  EndEvidence gone = told({"step 44, bucket 0 of group nodes: rank 1 has gone"});
  CHECK(ending(gone) == RunEnding::lost_rank);
  gone.post_mortems[0].all_were_there = true;
  CHECK(ending(gone) == RunEnding::network);
  CHECK_THAT(why_it_ended(gone, {}).what, Contains("the connection between them broke"));
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
  CHECK_THAT(why_it_ended(asleep, {}).advice, Contains("start it without n1"));
}

TEST_CASE("two ranks that report each other as silent were cut off by the network", "[why]") {
  EndEvidence both = told({"2 of 4 ranks missing: rank 2 on n2 (silent for 21 s), rank 3 on n2",
                           "2 of 4 ranks missing: rank 0 on n1 (silent for 21 s), rank 1 on n1"});
  both.post_mortems[0].missing = {2, 3};
  both.post_mortems[1].missing = {0, 1};
  both.post_mortems[1].told_by = 2;
  CHECK(ending(both) == RunEnding::network);
  CHECK_THAT(why_it_ended(both, {}).what, Contains("ranks 0 and 2"));
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
  CHECK(why_it_ended(held, {}).advice.empty());
}

TEST_CASE("a run that has a checkpoint, or a last word, has begun, whatever became of its records",
          "[why]") {
  EndEvidence records_lost;
  records_lost.checkpoint = "run/checkpoints/step-00000030.h5";
  const Why why = why_it_ended(records_lost, {});
  CHECK(why.ending == RunEnding::unknown);
  CHECK_THAT(why.what, Contains("records are missing or damaged"));
  CHECK_THAT(why.advice, Contains("continues from run/checkpoints/step-00000030.h5"));
  records_lost.end = begun("finished").end;
  CHECK(ending(records_lost) == RunEnding::finished);
  EndEvidence failed_at_start;
  failed_at_start.post_mortems.push_back({"step 0: does the file system of the run answer?"});
  CHECK(ending(failed_at_start) == RunEnding::file_system);
}

TEST_CASE("what cannot be read of a run's end is told, and counts as missing", "[why]") {
  const lockstep::test::Folder folder("why");
  observe::StartRecord first, other;
  first.run_id = "a";
  other.run_id = "b";
  other.time_ms = 2;
  lockstep::test::write_file(
      folder.path / "metrics.jsonl",
      to_json(observe::Record(first)) + "\nwild bytes\n" + to_json(observe::Record(other)) + "\n");
  lockstep::test::write_file(folder.path / "post-mortem.json", "{");
  std::filesystem::create_directory(folder.path / "post-mortem-rank1.json");
  const EndEvidence evidence = read_end_evidence(folder.path);
  CHECK(evidence.post_mortems.empty());
  std::string notes;
  for (const std::string& note : evidence.notes) notes += note + "\n";
  CHECK_THAT(notes, Contains("metrics.jsonl: 1 line is not records") &&
                        Contains("metrics.jsonl has the records of several runs") &&
                        Contains("post-mortem.json is damaged") &&
                        Contains("post-mortem-rank1.json"));
}

TEST_CASE("a run whose lock cannot be asked may still run, unless something says how it ended",
          "[why]") {
  EndEvidence hidden = begun();
  hidden.lock_fault = "run/.lock: Permission denied";
  const Why why = why_it_ended(hidden, {});
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
  CHECK_THAT(why_it_ended(begun(), {}).advice,
             Contains("--resume auto continues from run/checkpoints/step-00000030.h5"));
  CHECK_THAT(why_it_ended(begun("finished"), {}).advice, !Contains("resume"));
  CHECK_THAT(why_it_ended(begun("diverged", "training diverged"), {}).advice,
             !Contains("--resume auto") && Contains("older checkpoint"));
  EndEvidence early = begun("diverged", "training diverged");
  early.checkpoint.clear();
  CHECK_THAT(why_it_ended(early, {}).advice,
             !Contains("resume from") && Contains("start another run"));
  early.end.reset();
  CHECK_THAT(why_it_ended(early, {}).advice, Contains("--resume auto begins again"));
}
