#include "lockstep/observe/report.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "observe/progress_bar.hpp"
#include "tests/support/written_to.hpp"

using namespace lockstep;
using namespace lockstep::observe;
using namespace lockstep::model;
using Catch::Contains;

TEST_CASE("an epoch's line says how much of it was waiting for data, if it was much", "[report]") {
  EpochRecord record{1, 2, 0.5, 0.5, std::nullopt, 640};
  CHECK_THAT(epoch_line(record, 3, 10), !Contains("data"));
  record.validation = Validation{.loss = 1, .top1 = 0.5, .top5 = 1};
  CHECK_THAT(epoch_line(record, 3, 10), !Contains("average"));
  record.average = Validation{.loss = 0.5, .top1 = 0.625, .top5 = 1};
  CHECK_THAT(epoch_line(record, 3, 10),
             Contains("| average: loss 0.5000, top-1 62.50 %, top-5 100.00 % |"));
  record.data_share = 0.2;
  CHECK_THAT(epoch_line(record, 3, 10), Contains("20 % of the steps waiting for data"));
}

TEST_CASE("very short epochs share a line, and each epoch is in one", "[report]") {
  const RunStatistics seen;
  RunLog log(seen, {}, 100, 1, 0);
  const std::string lines = test::written_to(STDOUT_FILENO, [&] {
    for (std::uint64_t epoch = 1; epoch <= 100; ++epoch) {
      EpochRecord record{epoch, epoch, 0.5, 0.5, std::nullopt, 640};
      record.steps_ms = epoch == 50 ? 2000 : 250;
      log.write(record);
    }
  });
  // Ten lines at first; then five seconds, an epoch of two seconds, and the rest.
  CHECK_THAT(lines, Contains("\nepoch 10/100: loss 0.5000") &&
                        Contains("\nepochs 11 to 30 of 100, the last: loss 0.5000") &&
                        Contains("\nepochs 31 to 50 of 100, the last: ") &&
                        Contains("\nepochs 51 to 70 of 100, the last: ") &&
                        Contains("\nepochs 91 to 100 of 100, the last: "));
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 15);
}

TEST_CASE("a configuration is told by what differs from the defaults", "[report]") {
  config::Config config;
  CHECK(summarise(config) == "configuration: the defaults");
  config.epochs += 1;
  CHECK(summarise(config) == "configuration: epochs = " + std::to_string(config.epochs));
}

TEST_CASE("the time that is left counts the validations that will be made", "[report]") {
  RunStatistics seen;
  seen.steps = 10;
  seen.train_s = 10;
  seen.validation_s = 1000;
  // Of ten epochs of two steps three and a half are done: thirteen steps are left.
  const auto line = [&](std::uint64_t every) {
    return progress_line(Progress{.step = 7, .epoch = 3, .batch = 1}, seen,
                         {.epochs = 10, .steps_per_epoch = 2, .validate_every = every});
  };
  CHECK_THAT(line(1), Contains("ETA 1:56:53"));  // after epochs 4 to 10
  CHECK_THAT(line(3), Contains("ETA 50:13"));    // 6, 9, 10
  CHECK_THAT(line(5), Contains("ETA 33:33"));    // 5, 10
  CHECK_THAT(line(100), Contains("ETA 16:53"));  // 10
}

TEST_CASE("the end names the newest validation and the best, if there were any", "[report]") {
  Progress progress{.step = 6, .epoch = 3};
  CHECK(reached_line(progress, std::nullopt) == "done: 3 epochs, 6 steps");
  progress.best_score = 0.75;
  progress.best_epoch = 2;
  CHECK(reached_line(progress, std::nullopt) ==
        "done: 3 epochs, 6 steps, best validation top-1 75.00 % in epoch 2");
  CHECK(reached_line(progress, Validation{.loss = 1, .top1 = 0.5, .top5 = 1}) ==
        "done: 3 epochs, 6 steps, validation top-1 50.00 % (best 75.00 % in epoch 2)");
  CHECK(reached_line(progress, Validation{.loss = 1, .top1 = 0.5, .top5 = 1},
                     Validation{.loss = 1, .top1 = 0.625, .top5 = 1}) ==
        "done: 3 epochs, 6 steps, validation top-1 50.00 %, of the average 62.50 % (best 75.00 % "
        "in epoch 2)");
}

TEST_CASE("the expected time leaves out the first steps", "[report]") {
  RunStatistics seen;
  const auto line = [&] {
    return progress_line(Progress{.step = 4, .epoch = 0, .batch = seen.steps}, seen,
                         {.epochs = 1, .steps_per_epoch = 14});
  };
  seen.add({.forward_ms = 60'000}, 64);
  seen.add({.forward_ms = 30'000}, 64);
  CHECK_FALSE(seen.usual_step_s());
  CHECK_THAT(line(), !Contains("ETA"));
  seen.add({.forward_ms = 900}, 64);
  seen.add({.forward_ms = 1100}, 64);
  CHECK(*seen.usual_step_s() == Approx(1));
  CHECK_THAT(line(), Contains("ETA 10.0 s"));
  CHECK(expected_time(0.156, 4680, 2, 10) ==
        "expected time: 12:30 for 4680 steps of 156 ms and 10 validations");
}

TEST_CASE("a bar fits into its terminal and shows what matters most", "[report]") {
  const ProgressFigures figures{.epoch = 100,
                                .epochs = 1000,
                                .step = 5004,
                                .steps = 10008,
                                .loss = 6.9078,
                                .top1 = 0.5,
                                .lr = 0.0123,
                                .images_per_s = 12345,
                                .left_s = 100'000};
  for (int columns = 60; columns <= 200; ++columns) {
    const std::string line = progress_bar(figures, columns, false);
    CAPTURE(columns, line);
    CHECK(line.size() < static_cast<std::size_t>(columns));
    CHECK_THAT(line,
               Contains("epoch 100/1000 [=") && Contains(" 50 %") && Contains("  ETA 27:46:40"));
    CHECK_THAT(line, !Contains("\x1b"));
  }
  CHECK_THAT(progress_bar(figures, 100, false),
             Contains("loss 6.9078") && Contains("12345 images/s"));
  CHECK_THAT(progress_bar(figures, 140, false),
             Contains("step 5004/10008") && Contains("lr 0.0123"));
  CHECK_THAT(progress_bar(figures, 140, true), Contains("[\x1b[32m="));
}

TEST_CASE("lines name the scores of labels and values in place of top-1", "[report]") {
  EpochRecord record;
  record.epoch = 2;
  record.train_loss = 0.5;
  record.train_scores = {{"F1", 0.25}};
  record.validation =
      Validation{.loss = 0.75, .top1 = NAN, .top5 = NAN, .scores = {{"AUC", 0.875}, {"mAP", 0.5}}};
  record.images_per_s = std::numeric_limits<double>::quiet_NaN();
  CHECK(epoch_line(record, 3, 1, 1) ==
        "epoch 2/3: loss 0.5000, F1 0.25 | validation: loss 0.7500, AUC 0.875, mAP 0.5");
  model::Progress progress;
  progress.epoch = 2;
  progress.step = 9;
  progress.score = "mAP";
  progress.best_score = 0.625;
  progress.best_epoch = 1;
  CHECK(reached_line(progress, *record.validation, {}) ==
        "done: 2 epochs, 9 steps, validation AUC 0.875, mAP 0.5 (best mAP 0.625 in epoch 1)");
}
