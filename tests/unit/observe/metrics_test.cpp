#include <fcntl.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <thread>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/observe/metrics.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::observe;
using namespace lockstep::test;
using nlohmann::json;

namespace {

StepRecord step_record(std::uint64_t step) {
  StepRecord record;
  record.step = step;
  return record;
}

std::string last_line(const std::filesystem::path& path) {
  std::string text = read_text(path);
  text.pop_back();
  return text.substr(text.find_last_of('\n') + 1);
}

}  // namespace

TEST_CASE("metrics are JSON that says what was recorded", "[metrics]") {
  const StepRecord step{7, 2, 1.25, 0.05f, {0.1, 20, 30, 0.5, 1}, std::nullopt};
  const json line = json::parse(to_json(step));
  CHECK(line["step"] == 7);
  CHECK(line["epoch"] == 2);
  CHECK(line["loss"] == 1.25);
  CHECK(line["lr"].get<float>() == 0.05f);
  for (const char* time : {"data_ms", "forward_ms", "backward_ms", "exposed_comm_ms", "update_ms"})
    CHECK(line.contains(time));
  CHECK(line["backward_ms"] == 30);
  CHECK_FALSE(line.contains("gradient_norm"));
  StepRecord clipped = step;
  clipped.gradient_norm = 2.5;
  CHECK(json::parse(to_json(clipped))["gradient_norm"] == 2.5);
  clipped.gradient_norm = std::numeric_limits<double>::infinity();
  CHECK(json::parse(to_json(clipped))["gradient_norm"].is_null());

  EpochRecord epoch{2, 780, 0.5, 0.75, std::nullopt, 1234.5};
  CHECK_FALSE(json::parse(to_json(epoch)).contains("val_top1"));
  epoch.validation = Validation{0.25, 0.5, 1};
  const json with = json::parse(to_json(epoch));
  CHECK(with["val_top1"] == 0.5);
  CHECK(with["val_top5"] == 1.0);
  CHECK(with["last_step"] == 780);
  CHECK_FALSE(with.contains("ema_top1"));
  epoch.average = Validation{0.125, 0.625, 0.75};
  const json both = json::parse(to_json(epoch));
  CHECK(both["val_top1"] == 0.5);
  CHECK(both["ema_loss"] == 0.125);
  CHECK(both["ema_top1"] == 0.625);
  CHECK(both["ema_top5"] == 0.75);
  epoch.data_ms = 12.5;
  CHECK(json::parse(to_json(epoch))["data_ms"] == 12.5);

  const json resume = json::parse(to_json(ResumeRecord{7, {"out (a \"b\", now \n)"}}));
  CHECK(resume["resumed_from_step"] == 7);
  CHECK(resume["changes"][0] == "out (a \"b\", now \n)");
}

TEST_CASE("means that are not numbers are null, and the line stays JSON", "[metrics]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  StepRecord step;
  step.loss = nan;
  CHECK(json::parse(to_json(step))["loss"].is_null());
  const EpochRecord epoch{1, 5, nan, nan,
                          Validation{std::numeric_limits<double>::infinity(), 0, 0}};
  const json line = json::parse(to_json(epoch));
  for (const char* key : {"train_loss", "train_top1", "val_loss"}) CHECK(line[key].is_null());
}

TEST_CASE("a bad row whose path is not UTF-8 is recorded, and the line stays JSON", "[metrics]") {
  EpochRecord epoch;
  epoch.bad_rows = {"caf\xE9/train.h5: row 3 is damaged"};
  const json line = json::parse(to_json(epoch));
  CHECK(line["bad_rows"][0] == "caf\xEF\xBF\xBD/train.h5: row 3 is damaged");
}

TEST_CASE("a resumed log is cut where the checkpoint says and continues from there", "[metrics]") {
  const Folder folder;
  const auto path = folder.path / "metrics.jsonl";
  std::uint64_t at_checkpoint = 0;
  {
    MetricsLog log(path, 0);
    log.add("{\"step\":1}");
    log.add("{\"step\":2}");
    at_checkpoint = log.bytes();
    log.flush();
    log.add("{\"step\":3}");
  }
  CHECK(read_text(path) == "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  {
    MetricsLog log(path, at_checkpoint);
    CHECK(log.bytes() == at_checkpoint);
    log.add("{\"step\":\"3 again\"}");
  }
  CHECK(read_text(path) == "{\"step\":1}\n{\"step\":2}\n{\"step\":\"3 again\"}\n");
}

TEST_CASE(
    "a log that is removed or replaced continues in a new file, and its bytes are that file's",
    "[metrics]") {
  const Folder folder;
  const std::filesystem::path path = folder.path / "metrics.jsonl";
  MetricsLog log(path, 0);
  log.add("lost");
  log.flush();
  std::filesystem::remove(path);
  log.add("first");
  log.flush();
  CHECK(read_text(path) == "first\n");
  CHECK(log.bytes() == 6);
  std::filesystem::rename(path, folder.path / "aside");
  std::ofstream(path) << "other\n";
  log.add("second");
  log.flush();
  CHECK(read_text(path) == "other\nsecond\n");
  CHECK(log.bytes() == 13);
  std::filesystem::remove_all(folder.path);
  log.add("third");
  log.flush();  // the folder is missing: the next checkpoint says so
}

TEST_CASE("a log that is removed begins again with the start of the run", "[metrics]") {
  const Folder folder;
  const std::filesystem::path path = folder.path / "metrics.jsonl";
  MetricsLog log(path, 0);
  StartRecord begun;
  begun.run_id = "the run";
  log.write(begun);
  log.flush();
  const std::string start = read_text(path);
  std::filesystem::remove(path);
  log.add("first");
  log.flush();
  CHECK_THAT(start, Catch::Matchers::Contains("the run"));
  CHECK(read_text(path) == start + "first\n");
  CHECK(log.bytes() == start.size() + 6);
}

TEST_CASE("a line gets into the file although no other one comes", "[metrics][slow][waits]") {
  const Folder folder;
  const auto path = folder.path / "metrics.jsonl";
  MetricsLog log(path, 0);
  log.add("{\"step\":1}");
  for (int tenths = 0; tenths < 300 && std::filesystem::file_size(path) == 0; ++tenths)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(read_text(path) == "{\"step\":1}\n");
}

TEST_CASE("starts, ends and checkpoints after the cut are kept, other lines are not", "[metrics]") {
  const Folder folder;
  const auto path = folder.path / "metrics.jsonl";
  std::uint64_t at_checkpoint = 0;
  {
    MetricsLog log(path, 0);
    log.write(StartRecord{});
    log.write(step_record(1));
    at_checkpoint = log.bytes();
    log.write(step_record(2));
    log.add("damaged");
    log.write(CheckpointRecord{2});
    log.write(EndRecord{"failed", "a reason"});
    log.write(step_record(3));  // nothing follows an end
  }
  { MetricsLog log(path, at_checkpoint); }
  std::vector<std::size_t> kinds;
  const StrangeLines strange = read_records(path, [&](const Record& record) {
    kinds.push_back(record.index());
    return true;
  });
  CHECK(strange.count == 0);
  CHECK(kinds ==
        std::vector<std::size_t>{Record(StartRecord{}).index(), Record(StepRecord{}).index(),
                                 Record(CheckpointRecord{}).index(), Record(EndRecord{}).index()});
}

TEST_CASE("a run that is killed just after it has cut its log has lost nothing that happened",
          "[metrics]") {
  const Folder folder;
  const auto path = folder.path / "metrics.jsonl";
  std::string kept;
  {
    MetricsLog log(path, 0);
    log.write(step_record(1));
    log.flush();
    kept = read_text(path);
    log.write(step_record(2));
    log.write(CheckpointRecord{2});
  }
  const std::string checkpoint = last_line(path) + "\n";
  for (int times = 0; times < 2; ++times) {
    const MetricsLog killed(path, kept.size(), [] { throw Error("it writes nothing more"); });
    CHECK(read_text(path) == kept + checkpoint);
    CHECK(killed.bytes() == kept.size() + checkpoint.size());
  }
  CHECK(names_in(folder.path) == std::vector<std::string>{"metrics.jsonl"});
}

TEST_CASE("another thread can write what is buffered and the end, once", "[metrics]") {
  const Folder folder;
  const auto path = folder.path / "metrics.jsonl";
  end_metrics(EndRecord{"failed", ""});  // no log is open
  {
    MetricsLog log(path, 0);
    log.write(step_record(7));
    std::thread([] { end_metrics(EndRecord{"failed", "a rank was lost"}); }).join();
    const auto end = parse_record(last_line(path));
    REQUIRE(end);
    CHECK(std::get<EndRecord>(*end).steps == 7);
    CHECK(std::get<EndRecord>(*end).time_ms > 0);
    CHECK(std::get<EndRecord>(*end).reason == "a rank was lost");
    end_metrics(EndRecord{"failed", "again"});
    log.write(step_record(8));
  }
  CHECK_THAT(last_line(path), Catch::Contains("a rank was lost"));
  MetricsLog taken_over(folder.path / "other.jsonl", 0, [] { throw Error("a newer start"); });
  taken_over.write(step_record(1));
  end_metrics(EndRecord{"failed", ""});
  CHECK(read_text(folder.path / "other.jsonl").empty());
}

TEST_CASE("a log whose last lines cannot be written says so when it is destroyed", "[metrics]") {
  const Folder folder;
  const auto said = [&](const std::function<void()>& speak) {
    const auto path = folder.path / "stderr";
    const Owned<int, ::close, -1> file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644));
    const Owned<int, ::close, -1> before(::dup(STDERR_FILENO));
    ::dup2(file.get(), STDERR_FILENO);
    speak();
    ::dup2(before.get(), STDERR_FILENO);
    return read_text(path);
  };
  CHECK_THAT(said([] {
               MetricsLog full("/dev/full", 0);
               full.add("{}");
             }),
             Catch::Contains("error: /dev/full cannot be written: No space"));
  CHECK(said([] {
          MetricsLog full("/dev/full", 0);
          full.add("{}");
          CHECK_THROWS_AS(full.flush(), Error);
        }) == "");  // the caller knows
}

TEST_CASE("a log that is full says so before it waits, and loses no line", "[metrics]") {
  const Folder folder;
  const std::filesystem::path path = folder.path / "metrics.jsonl";
  std::promise<void> answer;
  std::size_t waits = 0, before = 0;
  MetricsLog log(
      path, 0, [answers = answer.get_future().share()] { answers.wait(); },
      [&] {
        if (waits++ == 0) answer.set_value();
      });
  const std::string line(std::size_t{1} << 20, 'x');
  while (waits == 0 && before < 40) {
    log.add(line);
    ++before;
  }
  CHECK(waits == 1);
  CHECK(before >= 17);  // and as many more as the thread has taken before it waits
  CHECK(before <= 34);
  log.flush();
  CHECK(std::filesystem::file_size(path) == before * (line.size() + 1));
}

TEST_CASE("a log that cannot be written is an error that names it", "[metrics]") {
  CHECK_THROWS_WITH(MetricsLog("/nonexistent/metrics.jsonl", 0),
                    Catch::Contains("/nonexistent/metrics.jsonl"));
  MetricsLog full("/dev/full", 0);
  full.add("{}");
  CHECK_THROWS_WITH(full.flush(), Catch::Contains("/dev/full") && Catch::Contains("No space"));
}
