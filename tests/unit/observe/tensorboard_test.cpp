#include <cmath>
#include <map>
#include <optional>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/observe/metrics.hpp"
#include "lockstep/observe/tensorboard/tensorboard_log.hpp"
#include "observe/tensorboard/events.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/support/harness/wire_reader.hpp"

using namespace lockstep;
using namespace lockstep::observe;
using namespace lockstep::test;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

/// The events of a file, whose checksums must be right.
std::vector<WireReader> events_in(const fs::path& path) {
  const std::string text = read_text(path);
  std::string_view rest = text;
  std::vector<WireReader> events;
  while (!rest.empty()) {
    const std::string_view length = WireReader::cut(rest, 8);
    CHECK(WireReader::little_endian(WireReader::cut(rest, 4)) == masked_crc32c(length));
    const std::string_view event = WireReader::cut(rest, WireReader::little_endian(length));
    CHECK(WireReader::little_endian(WireReader::cut(rest, 4)) == masked_crc32c(event));
    events.emplace_back(event);
  }
  return events;
}

std::map<std::string, float> points_of(const WireReader& event) {
  std::map<std::string, float> points;
  for (const WireReader& value : event.message(5).messages(1))
    if (value.has(2)) points[value.text(1)] = value.real32(2);
  return points;
}

/// "train/loss 1, train/loss 2, epoch/train_loss 2": these curves' points in a file, with steps.
std::string course(const fs::path& path) {
  std::string text;
  for (const WireReader& event : events_in(path)) {
    if (!event.has(5)) continue;
    for (const auto& [tag, value] : points_of(event))
      if (tag == "train/loss" || tag == "epoch/train_loss")
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", tag, event.number(2));
  }
  return text;
}

StepRecord step_at(std::uint64_t step) {
  StepRecord record{step, 1, 0.1 * static_cast<double>(step), 0.05f, {0.12345, 20, 30, 0.5, 1, 2}};
  record.top1 = 2.0 / 3;
  record.rows = 64;
  record.images_per_s = 1234.5678;
  record.memory_bytes = 123456789;
  record.time_ms = 1795375673000 + step;
  return record;
}

EpochRecord epoch_at(std::uint64_t step) {
  EpochRecord record{1, step, 0.5, 0.75, Validation{0.1234567890123, 2.0 / 3, 1}, 1234.5};
  record.time_ms = 5;
  return record;
}

/// A run's folder: what one start after the other writes.
struct Run {
  StartRecord start(std::uint64_t from_step) const {
    StartRecord record;
    record.run_id = "the run";
    record.from_step = from_step;
    record.hosts = {"node7"};
    record.ranks = 2;
    record.time_ms = time_ms;
    return record;
  }
  TensorBoardLog::Spec spec(const StartRecord& start) const {
    return {.folder = board, .metrics = metrics, .start = start, .config = {}};
  }
  /// Trains from one step to the next, with an epoch every three steps, and is then gone. Begins
  /// with the epoch of the first step where the kept lines do not have it.
  void train(std::uint64_t from_step, std::uint64_t to_step, std::uint64_t keep_bytes = 0) {
    time_ms += 1000;
    MetricsLog lines(metrics, keep_bytes);
    TensorBoardLog curves(spec(start(from_step)));
    Records records;
    records.subscribe(lines);
    records.subscribe(curves);
    records.write(start(from_step));
    if (from_step % 3 == 0 && bytes.contains(from_step) && keep_bytes == bytes[from_step])
      records.write(epoch_at(from_step));
    for (std::uint64_t step = from_step + 1; step <= to_step; ++step) {
      records.write(step_at(step));
      bytes[step] = lines.bytes();
      if (step % 3 == 0) records.write(epoch_at(step));
    }
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> paths;
    for (const std::string& name : names_in(board)) paths.push_back(board / name);
    return paths;
  }

  Folder folder;
  fs::path metrics = folder.path / "metrics.jsonl", board = folder.path / "tensorboard";
  std::uint64_t time_ms = 1795375673000;
  std::map<std::uint64_t, std::uint64_t> bytes;  ///< of the metrics after a step, before its epoch
};

}  // namespace

TEST_CASE("an event's frame has TensorFlow's checksums", "[tensorboard]") {
  CHECK(masked_crc32c("\x1a\x11"
                      "CRC test, one two") == 0x5794d08a);
  const std::string frame = framed(WireMessage().text(3, "x"));
  CHECK(frame.size() == 8 + 4 + 3 + 4);
  CHECK(frame.substr(0, 8) == std::string("\x03\0\0\0\0\0\0\0", 8));
}

TEST_CASE("each point of a curve is the number in metrics.jsonl, as float32", "[tensorboard]") {
  StepRecord step = step_at(7);
  step.loss_scale = LossScaling{1024, 3};
  step.gradient_norm = 1.0 / 3;
  RanksRecord ranks = ranks_record({{10, 20, 30, 4, 5, 1}, {2, 22, 28, 12.0 / 7, 5, 1}}, 2);
  ranks.step = 7;
  std::size_t compared = 0;
  for (const Record& record : {Record(step), Record(epoch_at(7)), Record(ranks)}) {
    const json line = json::parse(to_json(record));
    const WireReader event(curves_event(record)->bytes());
    CHECK(event.number(2) == 7);
    CHECK(event.real64(1) == line["time_ms"].get<double>() / 1e3);
    for (const auto& [tag, value] : points_of(event)) {
      CAPTURE(tag, value);
      std::string name = tag.substr(tag.find('/') + 1);
      const json* number = &line;
      if (tag.starts_with("ranks/")) {
        const std::size_t cut = name.find('_', name.starts_with("exposed_") ? 8 : 0);
        number = &line[name.substr(0, cut)];
        name = name.substr(cut + 1);
      }
      CHECK(value == static_cast<float>((*number)[name].get<double>()));
      ++compared;
    }
  }
  CHECK(compared == 14 + 9 + 6 * 4);
}

TEST_CASE("what is null in metrics.jsonl is no point of a curve", "[tensorboard]") {
  StepRecord step = step_at(1);
  step.loss = std::nan("");
  step.gradient_norm = std::numeric_limits<double>::infinity();
  const auto points = points_of(WireReader(curves_event(step)->bytes()));
  CHECK_FALSE(points.contains("train/loss"));
  CHECK_FALSE(points.contains("train/gradient_norm"));
  CHECK(points.contains("train/lr"));
  CHECK_FALSE(curves_event(CheckpointRecord{}));
}

TEST_CASE("a file begins with its version, where it starts, and the configuration",
          "[tensorboard]") {
  Run run;
  {
    TensorBoardLog::Spec spec = run.spec(run.start(0));
    spec.config.optim.nesterov = true;
    spec.config.optim.lr = 0.25f;
    spec.config.data.train = "caf\xE9";
    TensorBoardLog log(std::move(spec));
  }
  REQUIRE(run.files().size() == 1);
  CHECK(run.files()[0].filename().string() ==
        fmt::format("events.out.tfevents.1795375673.node7.{}.0", ::getpid()));
  const auto events = events_in(run.files()[0]);
  REQUIRE(events.size() == 3);
  CHECK(events[0].text(3) == "brain.Event:2");
  CHECK(events[1].message(7).number(1) == 1);
  CHECK(events[1].number(2) == 0);
  const WireReader value = events[2].message(5).message(1);
  CHECK(value.text(1) == "_hparams_/session_start_info");
  const WireReader plugin = value.message(9).message(1);
  CHECK(plugin.text(1) == "hparams");
  std::map<std::string, std::string> keys;
  for (const WireReader& entry : plugin.message(2).message(3).messages(1))
    keys[entry.text(1)] = entry.all(2)[0].bytes;
  const auto as_value = [](const WireMessage& message) { return message.bytes(); };
  CHECK(keys["optim.nesterov"] == as_value(WireMessage().number(4, 1)));
  CHECK(keys["optim.lr"] == as_value(WireMessage().real64(2, 0.25)));
  CHECK(keys["model"] == as_value(WireMessage().text(3, "resnet20")));
  CHECK(keys["data.train"] == as_value(WireMessage().text(3, "caf\xEF\xBF\xBD")));
  CHECK(keys["ranks"] == as_value(WireMessage().real64(2, 2)));
  CHECK_FALSE(keys.contains("out"));
}

TEST_CASE("a resumed run's new file begins with the points of its step, and repeats no others",
          "[tensorboard]") {
  Run run;
  run.train(0, 5);
  run.train(4, 7, run.bytes[4]);
  const auto files = run.files();
  REQUIRE(files.size() == 2);
  CHECK(course(files[0]) == "train/loss 1, train/loss 2, train/loss 3, epoch/train_loss 3");
  CHECK(events_in(files[1])[1].number(2) == 4);
  CHECK(course(files[1]) ==
        "train/loss 4, train/loss 5, train/loss 6, epoch/train_loss 6, train/loss 7");
}

TEST_CASE("an epoch has one point where its validation is done again, and where it is not",
          "[tensorboard]") {
  Run run;
  run.train(0, 4);
  const std::string whole = read_text(run.metrics);
  run.train(3, 4, whole.find("{\"step\":4,"));
  CHECK(course(run.files()[1]) == "train/loss 3, epoch/train_loss 3, train/loss 4");
  run.train(3, 4, run.bytes[3]);
  CHECK(course(run.files()[2]) == "train/loss 3, epoch/train_loss 3, train/loss 4");
}

TEST_CASE("an earlier file that is damaged is cut before the step, or stays as it is",
          "[tensorboard]") {
  std::string events;
  std::vector<std::size_t> ends;
  for (const std::uint64_t step : {1, 2, 300, 301}) {
    events += framed(*curves_event(step_at(step)));
    ends.push_back(events.size());
  }
  CHECK(bytes_before(events, 1) == 0);
  CHECK(bytes_before(events, 2) == ends[0]);
  CHECK(bytes_before(events, 3) == ends[1]);
  CHECK(bytes_before(events, 301) == ends[2]);
  CHECK(bytes_before(events, 302) == events.size());
  const std::string torn = events.substr(0, ends[2] + 30);
  CHECK(bytes_before(torn, 300) == ends[1]);
  CHECK(bytes_before(torn, 301) == torn.size());
  std::string damaged = events;
  damaged[ends[0] + 7] = '\x7f';
  CHECK(bytes_before(damaged, 300) == damaged.size());
  CHECK(bytes_before("", 1) == 0);
}

TEST_CASE("where no earlier file is, the first has all points of metrics.jsonl", "[tensorboard]") {
  Run run;
  run.train(0, 4);
  fs::remove_all(run.board);
  run.train(4, 5, run.bytes[4]);
  REQUIRE(run.files().size() == 1);
  CHECK(course(run.files()[0]) ==
        "train/loss 1, train/loss 2, train/loss 3, epoch/train_loss 3, train/loss 4, train/loss 5");
}

TEST_CASE("a start's file comes last by name, also where its clock is late", "[tensorboard]") {
  Run run;
  write_file(run.board / "events.out.tfevents.1995375900.other.1.0", "");
  run.train(0, 1);
  CHECK(run.files()[1].filename().string().starts_with("events.out.tfevents.1995375901.node7."));
}

TEST_CASE(
    "a run that finished or diverged says so to TensorBoard; one that can be resumed does not",
    "[tensorboard]") {
  const std::map<std::string, int> expected = {
      {"finished", 1}, {"diverged", 2}, {"failed", 0}, {"stopped", 0}};
  for (const auto& [status, code] : expected) {
    CAPTURE(status);
    Run run;
    {
      TensorBoardLog log(run.spec(run.start(0)));
      log.write(EndRecord{.status = status, .reason = "", .time_ms = 7500});
      log.flush();
    }
    const auto events = events_in(run.files()[0]);
    REQUIRE(events.size() == (code == 0 ? 3 : 4));
    if (code == 0) continue;
    const WireReader value = events[3].message(5).message(1);
    CHECK(value.text(1) == "_hparams_/session_end_info");
    const WireReader info = value.message(9).message(1).message(2).message(4);
    CHECK(info.number(1) == static_cast<std::uint64_t>(code));
    CHECK(info.real64(2) == 7.5);
  }
}

TEST_CASE("flushed points are in the file", "[tensorboard]") {
  Run run;
  TensorBoardLog log(run.spec(run.start(0)));
  log.write(step_at(1));
  log.flush();
  CHECK(course(run.files()[0]) == "train/loss 1");
}

TEST_CASE("curves that cannot be written end, and throw nothing", "[tensorboard]") {
  Run run;
  write_file(run.board, "a file");
  {
    TensorBoardLog log(run.spec(run.start(0)));
    log.write(step_at(1));
    log.flush();
    log.write(step_at(2));
  }
  CHECK(read_text(run.board) == "a file");
}

TEST_CASE("a start that is no longer the newest writes no points", "[tensorboard]") {
  Run run;
  TensorBoardLog::Spec spec = run.spec(run.start(0));
  int looks = 0;
  spec.require_writer = [&looks] {
    if (++looks > 1) throw Error("a newer start");
  };
  {
    TensorBoardLog log(std::move(spec));
    log.write(step_at(1));
    log.flush();
  }
  CHECK(course(run.files()[0]).empty());
  CHECK(events_in(run.files()[0]).size() == 3);
}
