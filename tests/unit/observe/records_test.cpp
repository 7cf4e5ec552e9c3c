#include "lockstep/observe/records.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/observe/binding_record.hpp"
#include "lockstep/observe/metrics.hpp"
#include "lockstep/observe/summary.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::observe;
using namespace lockstep::test;
using Catch::Contains;
using nlohmann::json;

namespace {

StartRecord a_start() {
  StartRecord start;
  start.run_id = "0123456789abcdef";
  start.from_step = 7;
  start.resumed_from = "runs/caf\xC3\xA9/\"x\"\n.h5";
  start.build = "b1";
  start.command = "lockstep train --out 'a b'";
  start.job = "12";
  start.ranks = 4;
  start.hosts = {"n1", "n2"};
  start.devices = {"cpu: 2 threads"};
  start.model = "resnet20";
  start.precision = "bf16";
  start.parameters = 269722;
  start.learning = 650;
  start.batch = 128;
  start.step_memory_bytes = std::uint64_t{1} << 40;
  start.data = "train";
  start.validation_data = "val";
  start.rows = 250;
  start.validation_rows = 53;
  start.classes = 10;
  start.epochs = 3;
  start.steps_per_epoch = 5;
  start.time_ms = 1795375673753;
  return start;
}

StepRecord a_step() {
  StepRecord step{7, 2, 1.25, 0.05f, {0.125, 20, 30, 0.5, 1, 0.25}, LossScaling{1024, 3}};
  step.top1 = 0.5;
  step.rows = 128;
  step.samples = 896;
  step.images_per_s = 2467.5;
  step.memory_bytes = 50950144;
  step.time_ms = 1;
  return step;
}

EpochRecord an_epoch() {
  EpochRecord epoch{2, 780, 0.5, 0.75, Validation{0.25, 0.5, 1}, 1234.5, {"a: row 3"}, 12.5};
  epoch.steps_ms = 1000;
  epoch.validation_ms = 20.5;
  epoch.time_ms = 2;
  return epoch;
}

RanksRecord some_ranks() {
  RanksRecord ranks = ranks_record({{10, 20, 30, 4, 5, 1}, {2, 22, 28, 12, 5, 1}}, 2);
  ranks.epoch = 1;
  ranks.step = 2;
  return ranks;
}

/// What is read back from a record's line is written as the same line.
template <class One>
One read_back(const One& record) {
  const std::string line = to_json(Record(record));
  CHECK(json::accept(line));
  CHECK(line.find('\n') == std::string::npos);
  const std::optional<Record> got = parse_record(line);
  REQUIRE(got);
  REQUIRE(std::holds_alternative<One>(*got));
  CHECK(to_json(*got) == line);
  return std::get<One>(*got);
}

StrangeLines read_text_as_records(const std::string& text, std::vector<Record>* records = nullptr) {
  const Folder folder;
  write_file(folder.path / "metrics.jsonl", text);
  return read_records(folder.path / "metrics.jsonl", [&](const Record& record) {
    if (records) records->push_back(record);
    return true;
  });
}

}  // namespace

TEST_CASE("scores are in a record by their names, and only where there are any", "[records]") {
  EpochRecord epoch = an_epoch();
  CHECK(to_json(epoch).find("scores") == std::string::npos);
  epoch.train_scores = {{"F1", 0.5}};
  epoch.validation->scores = {{"AUC", 0.75}, {"mAP", 0.1}};
  epoch.validation->top1 = std::numeric_limits<double>::quiet_NaN();
  const std::string line = to_json(epoch);
  CHECK(line.find(R"("val_top1":null)") != std::string::npos);
  CHECK(line.find(R"("val_scores":{"AUC":0.75,"mAP":0.1})") != std::string::npos);
  const auto read = std::get<EpochRecord>(*parse_record(line));
  CHECK(read.train_scores == epoch.train_scores);
  CHECK(read.validation->scores == epoch.validation->scores);
  StepRecord step = a_step();
  step.scores = {{"R2", -2.5}};
  CHECK(std::get<StepRecord>(*parse_record(to_json(step))).scores == step.scores);
}

TEST_CASE("every record is read as it was written", "[records]") {
  const StartRecord start = read_back(a_start());
  CHECK(start.resumed_from == a_start().resumed_from);
  CHECK(start.hosts == a_start().hosts);
  CHECK(start.learning == 650);
  CHECK(start.step_memory_bytes == std::uint64_t{1} << 40);

  const StepRecord step = read_back(a_step());
  CHECK(step.lr == 0.05f);
  CHECK(step.times.total_ms() == a_step().times.total_ms());
  REQUIRE(step.loss_scale);
  CHECK(step.loss_scale->skipped_steps == 3);
  CHECK(step.samples == 896);

  const EpochRecord epoch = read_back(an_epoch());
  REQUIRE(epoch.validation);
  CHECK(epoch.validation->top5 == 1);
  CHECK(epoch.bad_rows == std::vector<std::string>{"a: row 3"});

  CHECK(read_back(ResumeRecord{7, {"out (a \"b\", now \n)"}, 3}).changes[0] ==
        "out (a \"b\", now \n)");
  CHECK(read_back(some_ranks()).exposed_comm.ranks == std::vector<double>{2, 6});
  const CheckpointRecord saved = read_back(CheckpointRecord{40, 1000, 12.5, 80.25, 5});
  CHECK((saved.step == 40 && saved.bytes == 1000 && saved.blocked_ms == 12.5));
  CHECK((saved.written_ms == 80.25 && saved.time_ms == 5));
  const EndRecord end = read_back(EndRecord{"diverged", "the loss is nan", 8, 1, 2.5, 4});
  CHECK(end.reason == "the loss is nan");
  CHECK(end.seconds == 2.5);
}

TEST_CASE("a mean that is not a number is null, and is read as one that is not", "[records]") {
  StepRecord step = a_step();
  step.loss = std::numeric_limits<double>::infinity();
  step.loss_scale.reset();
  const StepRecord got = read_back(step);
  CHECK(std::isnan(got.loss));
  CHECK_FALSE(got.loss_scale);
}

TEST_CASE("the ranks' record names the least, the usual, the most and who had it", "[records]") {
  const RanksRecord ranks = some_ranks();
  CHECK(ranks.data.min_ms == 1);
  CHECK(ranks.data.median_ms == 1);
  CHECK(ranks.data.max_ms == 5);
  CHECK(ranks.data.slowest == 0);
  CHECK(ranks.exposed_comm.slowest == 1);
}

TEST_CASE("lines of older programs are read, records of newer kinds and fields are skipped",
          "[records]") {
  std::vector<Record> records;
  const StrangeLines strange = read_text_as_records(
      R"({"step":1,"epoch":1,"loss":2.5,"lr":0.1,"data_ms":1,"forward_ms":2,"backward_ms":3,)"
      R"("exposed_comm_ms":4,"update_ms":5})"
      "\n"
      R"({"epoch":1,"last_step":1,"train_loss":2.5,"train_top1":0.1,"images_per_s":10.0})"
      "\n"
      R"({"resumed_from_step":1,"changes":[]})"
      "\n"
      R"({"kind":"energy","joules":5})"
      "\n"
      R"({"kind":"end","status":"finished","colour":{"deep":[[1]]}})"
      "\n",
      &records);
  CHECK(strange.count == 0);
  REQUIRE(records.size() == 4);
  const auto& step = std::get<StepRecord>(records[0]);
  CHECK(step.times.total_ms() == 15);
  CHECK(std::isnan(step.top1));
  CHECK_FALSE(std::get<EpochRecord>(records[1]).validation);
  CHECK(std::get<ResumeRecord>(records[2]).step == 1);
  CHECK(std::get<EndRecord>(records[3]).status == "finished");
}

TEST_CASE("a damaged line is named with its number and what is wrong with it", "[records]") {
  const std::string good = to_json(Record(a_step())) + "\n";
  const auto why = [&](const std::string& line) {
    const StrangeLines strange = read_text_as_records(good + line + "\n" + good);
    CHECK(strange.count == 1);
    CHECK(strange.first == 2);
    return describe(strange, "runs/a/metrics.jsonl");
  };
  CHECK(why(good.substr(0, 40)) ==
        "runs/a/metrics.jsonl: 1 line is not records of lockstep; the first is line 2: it is not "
        "JSON");
  CHECK_THAT(why(R"({"step":"x"})"), Contains("\"step\" is not a whole number"));
  CHECK_THAT(why(R"({"step":-1})"), Contains("\"step\" is not a whole number"));
  CHECK_THAT(why(R"({"step":1e300})"), Contains("\"step\" is not a whole number"));
  CHECK_THAT(why(R"({"step":1,"epoch":1})"), Contains("it has no \"loss\""));
  CHECK_THAT(why(R"({"step":1,"epoch":1,"loss":[]})"), Contains("\"loss\" is not a number"));
  CHECK_THAT(why(R"({"resumed_from_step":1,"changes":[2]})"),
             Contains("\"changes\" is not a text"));
  CHECK_THAT(why(R"({"resumed_from_step":1,"changes":{}})"), Contains("\"changes\" is not a list"));
  CHECK_THAT(why(R"({"kind":3})"), Contains("\"kind\" is not a text"));
  CHECK_THAT(why(R"({"kind":"ranks","epoch":1,"until_step":1,"steps":1,"data":3})"),
             Contains("\"data\" is not an object"));
  CHECK_THAT(why("[1]"), Contains("it is not a JSON object"));
  CHECK_THAT(why("{}"), Contains("it has no \"kind\""));
  CHECK_THAT(why(std::string(100'000, '[')), Contains("it is not JSON"));
  CHECK_THAT(why("\xFF\xFE"), Contains("it is not JSON"));
}

TEST_CASE("a last line without its end is skipped, as a killed run leaves it", "[records]") {
  const std::string good = to_json(Record(a_step())) + "\n";
  std::vector<Record> records;
  CHECK(read_text_as_records(good + good.substr(0, 20), &records).count == 0);
  CHECK(records.size() == 1);
  CHECK(describe({}, "a").empty());
  CHECK_THROWS_WITH(read_records("/nonexistent", {}), Contains("/nonexistent"));
}

TEST_CASE("a summary is read as it was written, also one of an older program", "[records]") {
  const Folder folder;
  const auto path = folder.path / "summary.json";
  Summary summary;
  summary.model = "resnet20";
  summary.validation = Validation{0.25, 0.5, 1};
  summary.best = BestValidation{0.5, 1};
  summary.mean_step.other_ms = 0.5;
  summary.status = "diverged";
  summary.reason = "the loss is nan";
  summary.start = a_start();
  write_text_atomically(path, to_json(summary));
  const Summary got = read_summary(path);
  CHECK(to_json(got) == to_json(summary));
  CHECK_FALSE(got.finished());
  CHECK(got.start.command == a_start().command);

  write_text_atomically(path, R"({"model":"resnet20","precision":"fp32","batch":64,"epochs":1,
    "steps":5,"seconds":1.5,"images_per_s":10.5,"mean_step":{"data_ms":1.0,"forward_ms":2.0,
    "backward_ms":3.0,"exposed_comm_ms":0.0,"update_ms":0.1},"peak_resident_bytes":1})");
  CHECK(read_summary(path).finished());
  write_text_atomically(path, R"({"model":"resnet20","precision":1})");
  CHECK_THROWS_WITH(read_summary(path), path.string() + ": \"precision\" is not a text");
  write_text_atomically(path, "{");
  CHECK_THROWS_WITH(read_summary(path), path.string() + ": is not JSON");
}

TEST_CASE("a binding is read as it was written; a damaged one is named", "[records]") {
  RankBinding bound;
  bound.host = "n1";
  bound.compute = {"0", "1"};
  bound.ok = false;
  bound.read_back.emplace();
  bound.read_back->process_cpus = "0-1";
  bound.read_back->pages = {{"pinned", {{"0", 7}, {"unknown", 1}}}};
  RankBinding planned;
  planned.rank = 1;
  const Folder folder;
  const auto path = folder.path / "binding.json";
  write_text_atomically(path, to_json(std::vector{bound, planned}));
  const std::vector<RankBinding> got = read_bindings(path);
  REQUIRE(got.size() == 2);
  CHECK(to_json(got) == to_json(std::vector{bound, planned}));
  CHECK(got[0].read_back->pages.at("pinned").at("0") == 7);
  CHECK_FALSE(got[1].ok);
  CHECK_FALSE(got[1].read_back);

  write_text_atomically(path, R"([{"rank": 0, "host": "a"}, {"rank": 1}])");
  CHECK_THROWS_WITH(read_bindings(path), path.string() + ": entry 2: it has no \"host\"");
  write_text_atomically(path, "{}");
  CHECK_THROWS_WITH(read_bindings(path), path.string() + ": is not a list of ranks");
}

TEST_CASE("the time of a past moment does not depend on when it is asked for", "[records]") {
  const double then_ms = now_ms();
  const std::uint64_t at_once = unix_ms_of(then_ms), now = unix_ms();
  CHECK((at_once <= now && now - at_once < 60'000));
  for (int i = 0; i < 200; ++i) {
    const auto difference = [&](std::uint64_t time) {
      return static_cast<double>(time) - static_cast<double>(at_once);
    };
    CHECK(std::abs(difference(unix_ms_of(then_ms))) <= 1);
    CHECK(std::abs(difference(unix_ms_of(then_ms + 250)) - 250) <= 1);
  }
}

TEST_CASE("each record goes to every sink with its time, even if one of them fails", "[records]") {
  struct Kept final : Sink {
    std::vector<Record> records;
    void write(const Record& record) override { records.push_back(record); }
  };
  struct Full final : Sink {
    void write(const Record&) override { throw InputError("it is full"); }
  };
  Kept before, after;
  Full full;
  Records stream;
  for (Sink* sink : std::initializer_list<Sink*>{&before, &full, &after}) stream.subscribe(*sink);
  CHECK_THROWS_WITH(stream.write(EndRecord{"finished", ""}), "it is full");
  REQUIRE(before.records.size() == 1);
  REQUIRE(after.records.size() == 1);
  CHECK(std::get<EndRecord>(after.records[0]).time_ms > 1'700'000'000'000);
}

TEST_CASE("a step's line means what its tree of JSON means, however it is written", "[records]") {
  const std::string plain =
      "\"epoch\":1,\"kind\":\"step\",\"time_ms\":5,\"lr\":0.1,\"data_ms\":1.000,\"forward_ms\":2e0,"
      "\"backward_ms\":3,\"exposed_comm_ms\":null,\"update_ms\":0.5";
  const auto step_of = [](const std::string& line) {
    return std::get<StepRecord>(*parse_record(line));
  };
  const StepRecord flat = step_of("{\"step\":7,\"loss\":0.25," + plain + "}");
  // Blanks, unknown fields and fields that come twice are for the tree.
  const StepRecord trees[] = {step_of("{ \"step\":7,\"loss\":0.25," + plain + "}"),
                              step_of("{\"step\":7,\"loss\":0.25,\"new\":[1]," + plain + "}"),
                              step_of("{\"loss\":9,\"step\":7,\"loss\":0.25," + plain + "}")};
  for (const StepRecord& tree : trees) {
    CHECK(to_json(Record(tree)) == to_json(Record(flat)));
    CHECK(tree.time_ms == flat.time_ms);
  }
  CHECK(flat.loss == 0.25);
  CHECK(flat.times.forward_ms == 2);
  CHECK(std::isnan(flat.times.exposed_comm_ms));
  for (const char* number : {"07", "-1", "1.0", "0x7", "", "seven", "\"7\"", "null", "7 8"}) {
    CAPTURE(number);
    CHECK_THROWS_AS(parse_record("{\"step\":" + std::string(number) + ",\"loss\":1," + plain + "}"),
                    InputError);
  }
  for (const char* number : {"+1", ".5", "1.", "01", "inf", "1e", "--1"}) {
    CAPTURE(number);
    CHECK_THROWS_AS(parse_record("{\"step\":7,\"loss\":" + std::string(number) + "," + plain + "}"),
                    InputError);
  }
  CHECK_THROWS_AS(parse_record("{\"step\":7,\"loss\":1," + plain +
                               "} "
                               "{"),
                  InputError);
}
