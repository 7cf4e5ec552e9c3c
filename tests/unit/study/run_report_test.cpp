#include "lockstep/study/runs/run_report.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/observe/records.hpp"
#include "lockstep/observe/summary.hpp"
#include "study/page/document.hpp"
#include "study/page/plot.hpp"
#include "study/runs/story.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::study;
using namespace lockstep::test;
using Catch::Contains;

namespace {

observe::StartRecord a_start(std::uint64_t from, std::uint64_t time_ms) {
  observe::StartRecord start;
  start.run_id = "0123456789abcdef";
  start.from_step = from;
  start.command = "lockstep train --data.train 'a & <b>'";
  start.ranks = 2;
  start.hosts = {"n1"};
  start.model = "resnet20";
  start.epochs = 3;
  start.steps_per_epoch = 10;
  start.batch = 8;
  start.time_ms = time_ms;
  return start;
}

observe::StepRecord a_step(std::uint64_t step, double backward_ms = 2) {
  return {.step = step,
          .epoch = 1 + (step - 1) / 10,
          .loss = 2.0 / static_cast<double>(step),
          .lr = 0.1F,
          .times = {.data_ms = 1, .forward_ms = 1, .backward_ms = backward_ms},
          .top1 = 0.5,
          .rows = 8,
          .time_ms = 1000 * step};
}

/// Two starts, of which the second was killed.
std::string killed_run(const Folder& folder) {
  std::string lines = to_json(observe::Record(a_start(0, 1))) + "\n";
  for (std::uint64_t step = 1; step <= 10; ++step)
    lines += to_json(observe::Record(a_step(step))) + "\n";
  lines += to_json(observe::Record(a_start(10, 20000))) + "\n";
  for (std::uint64_t step = 11; step <= 25; ++step)
    lines += to_json(observe::Record(a_step(step, 6))) + "\n";
  const std::vector<observe::StepTimes> sums = {{.forward_ms = 100, .exposed_comm_ms = 50},
                                                {.forward_ms = 150}};
  lines += to_json(observe::Record(observe::ranks_record(sums, 10))) + "\n";
  write_file(folder.path / "run/metrics.jsonl", lines);
  write_file(folder.path / "run/config.toml", "model = \"resnet20\"\nbatch = 8\n");
  return folder.path / "run";
}

}  // namespace

TEST_CASE("a course of any length has a bounded number of pieces, and keeps its extremes",
          "[report]") {
  for (const std::uint64_t length : {1, 7, 8, 9, 1000, 4097}) {
    CAPTURE(length);
    Bins<Extremes> bins(8);
    double sum = 0;
    for (std::uint64_t step = 1; step <= length; ++step) {
      const double value = step == length / 2 + 1 ? 1e6 : static_cast<double>(step % 5);
      sum += value;
      bins.add(step, value);
    }
    CHECK(bins.pieces().size() <= 8);
    Extremes all;
    std::uint64_t step = 1;
    for (const Extremes& piece : bins.pieces()) {
      CHECK(piece.count == std::min(bins.width(), length + 1 - step));
      CHECK(piece.most_step >= step);
      CHECK(piece.most_step < step + bins.width());
      step += bins.width();
      all.merge(piece);
    }
    CHECK(all.count == length);
    CHECK(all.sum == sum);
    CHECK(all.most == 1e6);
    CHECK(all.most_step == length / 2 + 1);
  }
}

TEST_CASE("a value that is not finite is in no piece, and leaves a gap in a curve", "[report]") {
  Bins<Extremes> bins(4);
  bins.add(1, std::numeric_limits<double>::quiet_NaN());
  bins.add(2, 3.0);
  bins.add(4, std::numeric_limits<double>::infinity());
  CHECK(bins.pieces().at(0).count == 0);
  CHECK(bins.pieces().at(1).mean() == 3);
  CHECK(bins.pieces().at(3).count == 0);
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = plot_svg(
      {"t", "y", "x", {{.name = "a", .around = {}, .line = {{1, 1}, {2, nothing}, {3, 2}}}}});
  CHECK_THAT(svg, !Contains("nan"));
  CHECK(plot_svg({"t", "y", "x", {{.name = "a", .around = {}, .line = {{1, nothing}}}}}).empty());
}

TEST_CASE("an axis has round values, and only inside of its ends", "[report]") {
  const PlotAxis axis{.low = 0, .high = 7.3, .from = 0, .to = 1};
  CHECK(axis.ticks() == std::vector<double>{0, 2, 4, 6});
  const PlotAxis decades{.low = 0.9, .high = 60, .from = 0, .to = 1, .log = true};
  CHECK(decades.ticks().size() == 6);
  CHECK(decades.at(0.9) == 0);
  CHECK(decades.at(60) == 1);
}

TEST_CASE("a run that was killed is reported from its records", "[report]") {
  const Folder folder("report");
  const std::string run = killed_run(folder);
  const RunStory story = read_story(run);
  CHECK(story.why.ending == Ending::killed);
  CHECK(story.steps == 25);
  REQUIRE(story.starts.size() == 2);
  CHECK(story.measured.count == 15);
  CHECK(story.measured.mean().backward_ms == 6);
  CHECK(story.loss.pieces().size() == 25);
  CHECK(story.starts.front().seconds() == Approx(9.999));
  const RunReport report = report_runs({run});
  CHECK_THAT(report.text, Contains("killed: its records end after step 25"));
  CHECK_THAT(report.text, Contains("rank 1 makes the others wait 5.00 ms"));
  CHECK_THAT(report.html, Contains("started again after step 10; before, it ended without a word"));
  CHECK_THAT(report.html, Contains("a &amp; &lt;b&gt;"));
  CHECK_THAT(report.notes.at(0), Contains("binding.json is missing"));
  for (const char* reference : {"http", "src=", "@import", "<script"})
    CHECK_THAT(report.html, !Contains(reference));
}

TEST_CASE("a report has what all starts used, also the end of one that was killed", "[report]") {
  const Folder folder("report");
  observe::StartRecord first = a_start(0, 1000), second = a_start(10, 100000);
  first.cores = second.cores = 2;
  observe::LedgerRecord used{.epoch = 1,
                             .step = 10,
                             .seconds = 1800,
                             .cores = 2,
                             .machines = 1,
                             .cost = std::nullopt,
                             .energy = {}};
  used.cost = 4;
  used.energy = {{.source = "RAPL", .counts = "processor packages"}};
  used.energy[0].joules = 5000;
  used.energy[0].seconds = 1800;
  used.energy[0].machines = 1;
  observe::EpochRecord epoch{.epoch = 1, .step = 10};
  epoch.validation = observe::Validation{.loss = 1, .top1 = 0.5, .top5 = 1};
  observe::StepRecord killed = a_step(15);
  killed.time_ms = 1000 + 3600 * 1000;  // half an hour after the ledger's line
  observe::LedgerRecord later = used;
  later.epoch = 2;
  later.step = 20;
  const observe::EndRecord end{.status = "finished", .reason = "", .seconds = 1800};
  std::string lines;
  for (const observe::Record& one : std::vector<observe::Record>{
           first, a_step(10), epoch, used, killed, second, a_step(20), later, end})
    lines += to_json(one) + "\n";
  write_file(folder.path / "run/metrics.jsonl", lines);
  write_file(folder.path / "run/config.toml", "[cost]\nper-core-hour = 4\n");
  const RunStory story = read_story(folder.path / "run");
  REQUIRE(story.ledger.size() == 3);
  CHECK(story.ledger[1].seconds == Approx(1800));
  CHECK_FALSE(story.ledger[1].energy[0].joules.has_value());
  const std::string text = report_runs({folder.path / "run"}).text;
  const auto row = [&](const std::string& name) {
    const std::size_t at = text.find("\n" + name + "  ");
    return at == text.npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  };
  CHECK_THAT(row("time"), Contains("1:30:00") && Contains("30:00"));
  CHECK_THAT(row("core-hours"), Contains(" 3 ") && Contains(" 1"));
  CHECK_THAT(row("cost"), Contains(" 12 ") && Contains(" 4"));
  CHECK_THAT(row("energy, processor packages"), Contains("10 kJ") && Contains("5 kJ"));
  CHECK_THAT(text, Contains("in 1:00:00 of 1:30:00") && Contains("not in its records"));
  CHECK_THAT(row("Core-hours, all starts"), Contains(" 3"));
  lines.insert(lines.rfind("\"cores\":2") + 8, "0 ,\"was\":");
  write_file(folder.path / "run/metrics.jsonl", lines);
  CHECK_THAT(report_runs({folder.path / "run"}).text,
             Contains(" 2 (without 30:00, whose cores are unknown)"));
}

TEST_CASE("a run's other files are reported where one is damaged", "[report]") {
  const Folder folder("report");
  const std::filesystem::path run = killed_run(folder);
  write_file(run / "binding.json", "[{\"rank\":");
  write_file(run / "config.toml", "no_such_key = 1\n");
  std::string lines = read_text(run / "metrics.jsonl");
  lines.replace(lines.find("\"step\":5,"), 9, "\"step\":x,");
  write_file(run / "metrics.jsonl", lines);
  const RunReport report = report_runs({run});
  REQUIRE(report.notes.size() == 3);
  CHECK_THAT(report.notes[0], Contains("metrics.jsonl: 1 line is not records of lockstep"));
  CHECK_THAT(report.notes[1], Contains("binding.json: is not JSON"));
  CHECK_THAT(report.notes[2], Contains("config.toml") && Contains("no_such_key"));
  CHECK_THAT(report.html, Contains("no_such_key = 1"));
  std::filesystem::remove(run / "metrics.jsonl");
  CHECK_THAT(report_runs({run}).text,
             Contains("never began") && Contains("metrics.jsonl is missing"));
}

TEST_CASE("a folder whose records are another program's is an error that names it", "[report]") {
  const Folder folder("report");
  write_file(folder.path / "other/metrics.jsonl", "{\"loss\":1}\n{\"loss\":2}\n");
  CHECK_THROWS_WITH(report_runs({folder.path / "other"}),
                    Contains("other/metrics.jsonl: 2 lines are not records of lockstep"));
  CHECK_THROWS_AS(report_runs({folder.path / "absent"}), InputError);
}

TEST_CASE("figures of another start, or of another run, are not mixed with the newest start's",
          "[report]") {
  const Folder folder("report");
  const std::filesystem::path run = killed_run(folder);
  observe::Summary summary;
  summary.images_per_s = 77777;
  summary.start = a_start(0, 1);  // the first start's
  write_file(run / "summary.json", to_json(summary));
  std::string lines = read_text(run / "metrics.jsonl");
  observe::StartRecord foreign = a_start(25, 90000);
  foreign.run_id = "f";
  write_file(run / "metrics.jsonl", lines + to_json(observe::Record(foreign)) + "\n");
  const RunReport report = report_runs({run});
  CHECK_THAT(report.text, !Contains("77777"));
  std::string notes;
  for (const std::string& note : report.notes) notes += note + "\n";
  CHECK_THAT(notes, Contains("summary.json is of another start") && Contains("several runs"));
}

TEST_CASE("a text has no heading above pictures alone, and names stay on their lines", "[report]") {
  const Document document{"a\nb",
                          {Verdict{"c\nd", ""}, Heading{"Course"}, Figure{"f", "<svg/>", ""},
                           Heading{"Numbers"}, TextTable{{{"run"}, {"x\ny"}}, ""}}};
  CHECK(as_text(document) == "a\\nb\nc\\nd\n\nNumbers\nrun\nx\\ny\n");
}

TEST_CASE("how to repeat a run that was resumed begins with its first start", "[report]") {
  const Folder folder("report");
  const std::filesystem::path run = killed_run(folder);
  std::string lines = read_text(run / "metrics.jsonl");
  const std::size_t at = lines.rfind("lockstep train --data.train");
  lines.replace(at, 14, "lockstep resum");
  write_file(run / "metrics.jsonl", lines);
  const std::string text = report_runs({run}).text;
  CHECK_THAT(text, Contains("The first start's command, of each of 2 ranks:\n# build ?, 2 ranks\n"
                            "lockstep train") &&
                       Contains("The newest start's command, of each of 2 ranks") &&
                       Contains("Elapsed Time, newest start"));
}

TEST_CASE("runs are compared by the keys that differ", "[report]") {
  const Folder folder("report");
  const std::filesystem::path run = killed_run(folder), other = folder.path / "other";
  std::filesystem::copy(run, other, std::filesystem::copy_options::recursive);
  write_file(other / "config.toml", "model = \"resnet20\"\nbatch = 16\n");
  const RunReport report = report_runs({run, other});
  CHECK_THAT(report.text, Contains("Keys that differ\nkey "));
  CHECK_THAT(report.text, Contains("\nbatch  8 ") && !Contains("\nmodel  "));
  CHECK_THAT(report.html, Contains(other.string() + "</text>"));  // in the curves' legend
}

TEST_CASE("only a report is known as a report", "[report]") {
  const Folder folder("report");
  const std::string run = killed_run(folder);
  write_file(folder.path / "page.html", report_runs({run}).html);
  write_file(folder.path / "other.html", "<html>lockstep report</html>");
  CHECK(is_run_report(folder.path / "page.html"));
  CHECK_FALSE(is_run_report(folder.path / "other.html"));
  CHECK_FALSE(is_run_report(folder.path / "absent.html"));
}
