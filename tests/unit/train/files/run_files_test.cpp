#include "train/files/run_files.hpp"

#include <catch2/catch.hpp>

#include <memory>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/control.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/support/laws/solo.hpp"
#include "tests/unit/model/checkpoint_fixture.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::config;
using namespace lockstep::train;
using Catch::Matchers::Contains;
using lockstep::comm::LoneControl;
using lockstep::test::FakeParameters;
using lockstep::test::Folder;
using lockstep::test::small_model;
using lockstep::test::some_header;
using lockstep::test::write_file;

namespace {

namespace fs = std::filesystem;

/// The second of two ranks: it learns from rank 0 that the run's directory is `path`.
class SecondRank final : public comm::Control {
 public:
  explicit SecondRank(std::string path) : path_(std::move(path)) {}
  int rank() const override { return 1; }
  int world() const override { return 2; }

 private:
  std::string meet(const std::string& mine, std::string_view, const Combine& combine) override {
    return combine({mine.empty() ? path_ : mine, mine});
  }
  std::string path_;
};

observe::StepRecord step_record(std::uint64_t step) {
  observe::StepRecord record;
  record.step = step;
  return record;
}

/// A run of one rank in its own folder.
struct Fixture {
  explicit Fixture(const std::string& out = "run") {
    spec.allocation.host = "n1";
    spec.config.out = (folder.path / out).string();
  }

  std::unique_ptr<RunFiles> open() { return std::make_unique<RunFiles>(spec, control); }
  std::unique_ptr<RunFiles> begin() {
    auto files = open();
    files->require_free({});
    files->claim({});
    files->begin({}, {}, "[]\n");
    return files;
  }
  /// Saves the state, and returns its file once it is on the disk.
  fs::path save(RunFiles& files) {
    const CheckpointHeader header = some_header();
    files.begin_save({}, header, parameters);
    files.end_save(now_s());
    files.finish_saving();
    return files.checkpoints().path_of(header.progress.step);
  }

  Folder folder;
  RunSpec spec;
  LoneControl control;
  FakeParameters parameters{small_model()};
};

}  // namespace

TEST_CASE("a run writes nothing before it claims its directory", "[run]") {
  Fixture run;
  const auto files = run.open();
  files->require_free({});
  CHECK(test::names_in(run.folder.path).empty());
  files->claim({});
  files->begin({}, {}, "[]\n");
  CHECK(fs::exists(files->directory().config()));
  CHECK(read_text(files->directory().binding()) == "[]\n");
  CHECK_FALSE(fs::exists(files->directory().summary()));
}

TEST_CASE("only rank 0 touches the files of a run", "[run]") {
  Fixture run("run-{n}");
  SecondRank control((run.folder.path / "run-3").string());
  RunFiles files(run.spec, control);
  files.require_free({});
  files.claim({});
  files.begin({}, {}, "[]\n");
  files.records().write(step_record(1));
  files.request_flush_of_metrics();
  files.begin_save({.newest = true, .best = true}, some_header(), run.parameters);
  files.end_save(now_s());
  CHECK_FALSE(files.saving());
  CHECK(files.record_saved().empty());
  files.finish_saving();
  files.write_summary({});
  CHECK(test::names_in(run.folder.path).empty());
  CHECK(files.directory().root() == run.folder.path / "run-3");
}

TEST_CASE("the saved configuration is the experiment's, without one start's resume and stop",
          "[run]") {
  Fixture run("run-{n}");
  run.spec.config.stop_after = 7;
  const auto files = run.begin();
  Config saved;
  apply_toml(saved, read_text(files->directory().config()), "config.toml");
  CHECK(saved.out == (run.folder.path / "run-1").string());
  CHECK(saved.stop_after == 0);
  CHECK(run.spec.config.stop_after == 7);
}

TEST_CASE("another run takes what was asked for, and a resume what was decided", "[run]") {
  Fixture run;
  const auto files = run.open();
  files->require_free({});
  files->claim({});
  files->begin({}, {.winograd = {backend::Winograd::Mode::everywhere, {}}}, "[]\n");
  Config asked, decided, resumed;
  apply_toml(asked, read_text(files->directory().config()), "config.toml");
  apply_toml(decided, read_text(files->directory().decisions()), "decisions.toml");
  apply_toml(resumed, read_header(run.save(*files)).config, "checkpoint");
  CHECK(to_string(asked.winograd) == "auto");
  CHECK(to_string(decided.winograd) == "true");
  CHECK(to_string(resumed.winograd) == "true");
  CHECK_THAT(read_text(files->directory().decisions()), !Contains("epochs"));
}

TEST_CASE("a run that another one has begun is not written over", "[run]") {
  Fixture run;
  run.begin();
  CHECK_THROWS_WITH(run.open()->require_free({}), Contains("already holds a run"));
}

TEST_CASE("a run that came and went while this one looked is noticed", "[run]") {
  Fixture run;
  run.spec.config.resume = "auto";
  const auto files = run.open();
  write_file(files->checkpoints().path_of(3), "of another run");
  CHECK_THROWS_WITH(files->claim({}), Contains("another run has just written here"));
}

TEST_CASE("a checkpoint counts only lines of metrics that are in the file", "[run]") {
  Fixture run;
  const auto files = run.begin();
  files->records().write(step_record(1));
  const fs::path path = run.save(*files);
  const CheckpointHeader header = read_header(path);
  CHECK(header.metrics_bytes > 0);
  CHECK(fs::file_size(files->directory().metrics()) == header.metrics_bytes);
  CHECK_THAT(read_text(files->directory().metrics()), Contains("{\"step\":1,"));
}

TEST_CASE("an older start of a run writes nothing more", "[run]") {
  Fixture run;
  const auto files = run.begin();
  const fs::path first = run.save(*files);
  CHECK(fs::exists(first));
  const Generation newer(files->directory(), {.number = 0, .step = 0, .host = "n2", .job = ""});
  fs::remove(first);
  CHECK_THROWS_WITH(run.save(*files), Contains("started again on n2"));
  CHECK_FALSE(fs::exists(first));
}

TEST_CASE("a job's third start from the same step ends, and says so", "[run]") {
  Fixture run;
  run.spec.config.resume = "auto";
  run.spec.allocation.job = "12";
  for (int restarts = 0; restarts < 2; ++restarts) {
    run.spec.allocation.restarts = restarts;
    run.begin();
  }
  run.spec.allocation.restarts = 2;
  CHECK_THROWS_WITH(run.begin(), Contains("job 12 was started twice from step 0"));
}

TEST_CASE("a run that resumes in its own directory is not finished any more", "[run]") {
  Fixture run;
  auto files = run.begin();
  files->records().write(step_record(1));
  const fs::path path = run.save(*files);
  files->records().write(step_record(2));
  files->write_summary({});
  files.reset();

  RunStart start;
  start.resume = ResumePoint{.checkpoint = path, .header = read_header(path), .same_run = true};
  start.progress = start.resume->header.progress;
  start.progress.step = 1;
  start.changes = {"optim.lr (0.1, now 0.2)"};
  files = run.open();
  files->require_free(start);
  files->claim(start);
  files->begin(start, {}, "[]\n");
  CHECK_FALSE(fs::exists(files->directory().summary()));
  const std::string metrics = read_text(files->directory().metrics());
  CHECK_THAT(metrics, Contains("{\"step\":1,") && Contains("now 0.2") && !Contains("{\"step\":2,"));
}
