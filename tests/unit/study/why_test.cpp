#include <catch2/catch.hpp>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/ending_names.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/study/why/why.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::study;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint64_t ended_ms = 10'000'000;

EndEvidence begun(const std::string& status = "", Ending is = Ending::unknown,
                  const std::string& reason = "") {
  EndEvidence evidence;
  evidence.start.emplace();
  evidence.steps = 40;
  evidence.last_ms = ended_ms;
  evidence.checkpoint = "run/checkpoints/step-00000030.h5";
  if (!status.empty())
    evidence.end = {
        .status = status, .reason = reason, .steps = 41, .time_ms = ended_ms, .ending = is};
  return evidence;
}

EndEvidence told(const std::vector<EndEvidence::PostMortem>& reports) {
  EndEvidence evidence = begun();
  evidence.post_mortems = reports;
  return evidence;
}

/// Slurm ended the job that long after the run.
SlurmWord slurm(const std::string& state, double after_s = 5) {
  const auto ms = static_cast<std::uint64_t>(static_cast<double>(ended_ms) + 1e3 * after_s);
  return {state, ms, ms};
}

Ending ending(const EndEvidence& evidence, const std::string& state = "") {
  return why_it_ended(evidence, slurm(state)).ending;
}

const EndEvidence::PostMortem lost{
    "1 of 4 ranks missing: rank 3 on n2 (its process has ended, last in step 7, backward)",
    Ending::lost_rank};

}  // namespace

TEST_CASE("a run's own last word is how it ended, in whatever sentence it is said", "[why]") {
  CHECK(ending(begun("finished", Ending::finished)) == Ending::finished);
  CHECK(ending(begun("stopped", Ending::stopped, "a signal")) == Ending::stopped);
  CHECK(ending(begun("stopped", Ending::stopped, "stop-after")) == Ending::stopped);
  CHECK(ending(begun("stopped", Ending::stopped), "PREEMPTED") == Ending::preempted);
  CHECK(ending(begun("stopped", Ending::out_of_time)) == Ending::out_of_time);
  for (const auto& [is, name] : Choices<Ending>::all) {
    if (is == Ending::finished || is == Ending::running) continue;  // no failure
    CAPTURE(name);
    for (const std::string reason : {"something else",
                                     "the ranks missing: row 3, of the GPU's "
                                     "memory, training diverged, though all ranks answer"}) {
      CHECK(ending(begun("failed", is, reason)) == is);
      CHECK_THAT(why_it_ended(told({{reason, is}}), {}).what, Contains(reason));
      CHECK(ending(told({{reason, is}})) == is);
    }
    CHECK(why_it_ended(begun("failed", is, "a"), {}).advice ==
          why_it_ended(begun("failed", is, "b"), {}).advice);
  }
}

TEST_CASE("an exception that does not know how a run ends with it says it in the system's words",
          "[why]") {
  CHECK(ending_of(Error("a", Ending::stuck)) == Ending::stuck);
  CHECK(ending_of(Error("no space left here", Ending::unknown)) == Ending::unknown);
  CHECK(ending_of(std::bad_alloc()) == Ending::out_of_memory);
  const std::pair<int, Ending> faults[] = {
      {ENOSPC, Ending::disk_full}, {EDQUOT, Ending::disk_full},   {ENOMEM, Ending::out_of_memory},
      {EIO, Ending::file_system},  {ESTALE, Ending::file_system}, {EACCES, Ending::unknown}};
  for (const auto& [number, is] : faults) {
    CAPTURE(std::strerror(number));
    CHECK(ending_of(InputError(std::string("a.h5: ") + std::strerror(number))) == is);
  }
}

TEST_CASE("Slurm tells of a run only where it ended with its job", "[why]") {
  const EndEvidence stopped = begun("stopped", Ending::stopped, "a signal");
  for (const double hours_s : {-7200.0, 7200.0}) {
    CHECK(why_it_ended(stopped, slurm("TIMEOUT", hours_s)).ending == Ending::stopped);
    CHECK(why_it_ended(told({lost}), slurm("OUT_OF_MEMORY", hours_s)).ending == Ending::lost_rank);
    CHECK(why_it_ended(begun(), slurm("TIMEOUT", hours_s)).ending == Ending::killed);
    CHECK_THAT(why_it_ended(begun(), slurm("CANCELLED by 0", hours_s)).what, !Contains("Slurm"));
  }
  CHECK(ending(stopped, "TIMEOUT") == Ending::out_of_time);
  CHECK(ending(stopped, "NODE_FAIL") == Ending::stopped);
  CHECK(why_it_ended(stopped, {"TIMEOUT", 0, 0}).ending == Ending::stopped);  // when, is unknown
  // A step may take minutes, of which the records of a run that is killed say nothing.
  CHECK(why_it_ended(begun(), slurm("TIMEOUT", 300)).ending == Ending::out_of_time);
  CHECK(why_it_ended(stopped, {"PREEMPTED", ended_ms - 300'000, ended_ms + 5'000}).ending ==
        Ending::preempted);
}

TEST_CASE("a run that failed because of a rank that is gone asks Slurm why that is", "[why]") {
  const EndEvidence gone = begun("failed", Ending::lost_rank, "rank 3 on n7 has gone");
  CHECK(ending(gone) == Ending::lost_rank);
  CHECK(ending(gone, "OUT_OF_MEMORY") == Ending::out_of_memory);
  CHECK(ending(begun("failed", Ending::disk_full), "OUT_OF_MEMORY") == Ending::disk_full);
}

TEST_CASE("a rank that has gone while all ranks were there has lost its connection", "[why]") {
  EndEvidence gone = told({{"rank 1 has gone", Ending::lost_rank}});
  CHECK(ending(gone) == Ending::lost_rank);
  gone.post_mortems[0].all_were_there = true;
  CHECK(ending(gone) == Ending::network);
  CHECK_THAT(why_it_ended(gone, {}).what, Contains("the connection between them broke"));
}

TEST_CASE("of what ranks report, the most certain cause counts", "[why]") {
  CHECK(ending(told({lost})) == Ending::lost_rank);
  CHECK(ending(told({lost}), "OUT_OF_MEMORY") == Ending::out_of_memory);
  CHECK(ending(told({lost}), "NODE_FAIL") == Ending::lost_rank);
  EndEvidence short_of_memory = told({lost});
  short_of_memory.post_mortems[0].memory_kills = 1;
  CHECK(ending(short_of_memory) == Ending::out_of_memory);
  CHECK(ending(told({lost}), "FAILED") == Ending::lost_rank);
  const EndEvidence cut = told({lost, {"n1 and n2 do not reach each other", Ending::network}});
  CHECK(ending(cut) == Ending::network);
  CHECK(ending(cut, "OUT_OF_MEMORY") == Ending::network);
  EndEvidence asleep = told({{"the others wait for rank 1 on n1", Ending::file_system}});
  asleep.post_mortems[0].leave_out = "n1";
  CHECK_THAT(why_it_ended(asleep, {}).advice, Contains("start it without n1"));
}

TEST_CASE("two ranks that report each other as silent were cut off by the network", "[why]") {
  EndEvidence both = told({{"rank 2 on n2 (silent for 21 s)", Ending::lost_rank},
                           {"rank 0 on n1 (silent for 21 s)", Ending::lost_rank}});
  both.post_mortems[0].missing = both.post_mortems[0].silent = {2, 3};
  both.post_mortems[1].missing = both.post_mortems[1].silent = {0, 1};
  both.post_mortems[1].told_by = 2;
  CHECK(ending(both) == Ending::network);
  CHECK_THAT(why_it_ended(both, {}).what, Contains("ranks 0 and 2"));
  EndEvidence continued = both;
  continued.post_mortems[0].silent = {3};  // rank 2 was stopped
  CHECK(ending(continued) == Ending::lost_rank);
  both.post_mortems[1].missing = both.post_mortems[1].silent = {1};
  CHECK(ending(both) == Ending::lost_rank);
}

TEST_CASE("a run that left no word was killed, unless Slurm knows more", "[why]") {
  CHECK(ending(begun()) == Ending::killed);
  CHECK(ending(begun(), "CANCELLED by 0") == Ending::killed);
  CHECK(ending(begun(), "TIMEOUT") == Ending::out_of_time);
  CHECK(ending(begun(), "NODE_FAIL") == Ending::lost_rank);
  CHECK(ending(EndEvidence{}) == Ending::never_began);
  EndEvidence held = begun();
  held.held_since_ms = 0;
  CHECK(ending(held) == Ending::running);
  held.last_ms = 7'500;
  held.post_mortems = {{.reason = "rank 1 on n1", .ending = Ending::lost_rank, .before_ms = 8'000}};
  CHECK(ending(held) == Ending::lost_rank);  // its process is still there, but ends
  held.held_since_ms = 8'000;
  CHECK(ending(held) == Ending::running);  // a newer start has not written its first record
  held.held_since_ms = 6'000;
  held.last_ms = 8'000;
  CHECK(ending(held) == Ending::running);
  CHECK(why_it_ended(held, {}).advice.empty());
}

TEST_CASE("a run that has a checkpoint, or a last word, has begun, whatever became of its records",
          "[why]") {
  EndEvidence records_lost;
  records_lost.checkpoint = "run/checkpoints/step-00000030.h5";
  const Why why = why_it_ended(records_lost, {});
  CHECK(why.ending == Ending::unknown);
  CHECK_THAT(why.what, Contains("records are missing or damaged"));
  CHECK_THAT(why.advice, Contains("continues from run/checkpoints/step-00000030.h5"));
  records_lost.end = begun("finished", Ending::finished).end;
  CHECK(ending(records_lost) == Ending::finished);
  EndEvidence failed_at_start;
  failed_at_start.post_mortems.push_back({"step 0", Ending::file_system});
  CHECK(ending(failed_at_start) == Ending::file_system);
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

TEST_CASE("of an older program's run the end is its status, or the system's words", "[why]") {
  const lockstep::test::Folder folder("why");
  const auto end_of = [&](const std::string& status, const std::string& reason) {
    lockstep::test::write_file(folder.path / "metrics.jsonl",
                               to_json(observe::Record(observe::StartRecord{})) +
                                   "\n{\"kind\":\"end\",\"status\":\"" + status +
                                   "\",\"reason\":\"" + reason + "\"}\n");
    return ending(read_end_evidence(folder.path));
  };
  CHECK(end_of("finished", "") == Ending::finished);
  CHECK(end_of("stopped", "a signal") == Ending::stopped);
  CHECK(end_of("diverged", "the loss is nan") == Ending::diverged);
  CHECK(end_of("failed", "r/metrics.jsonl: No space left on device") == Ending::disk_full);
  CHECK(end_of("failed", "training diverged") == Ending::unknown);
}

TEST_CASE("a run whose lock cannot be asked may still run, unless something says how it ended",
          "[why]") {
  EndEvidence hidden = begun();
  hidden.lock_fault = "run/.lock: Permission denied";
  const Why why = why_it_ended(hidden, {});
  CHECK(why.ending == Ending::unknown);
  CHECK_THAT(why.what, Contains("whether it still runs is not known: run/.lock: Permission"));
  CHECK_THAT(why.advice, !Contains("resume"));
  CHECK(ending(hidden, "NODE_FAIL") == Ending::lost_rank);
  hidden.post_mortems.push_back(lost);
  CHECK(ending(hidden) == Ending::lost_rank);
  hidden.post_mortems.clear();
  hidden.end = begun("finished", Ending::finished).end;
  CHECK(ending(hidden) == Ending::finished);
  EndEvidence new_one;
  new_one.lock_fault = hidden.lock_fault;
  CHECK(ending(new_one) == Ending::unknown);
}

TEST_CASE("where a checkpoint is, the advice ends with how to resume; not where it would diverge",
          "[why]") {
  CHECK_THAT(why_it_ended(begun(), {}).advice,
             Contains("--resume auto continues from run/checkpoints/step-00000030.h5"));
  CHECK_THAT(why_it_ended(begun("finished", Ending::finished), {}).advice, !Contains("resume"));
  CHECK_THAT(why_it_ended(begun("diverged", Ending::diverged), {}).advice,
             !Contains("--resume auto") && Contains("older checkpoint"));
  EndEvidence early = begun("diverged", Ending::diverged);
  early.checkpoint.clear();
  CHECK_THAT(why_it_ended(early, {}).advice,
             !Contains("resume from") && Contains("start another run"));
  early.end.reset();
  CHECK_THAT(why_it_ended(early, {}).advice, Contains("--resume auto begins again"));
}
