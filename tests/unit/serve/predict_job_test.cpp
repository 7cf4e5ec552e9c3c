// Workers of a swarm, each with a backend, on one folder: what they publish together is what one
// would, and what a network says of single rows.
#include "lockstep/serve/predict_job.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/infer/classifier.hpp"
#include "serve/predictions/predictions.hpp"
#include "serve/predictor.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::infer;
using namespace lockstep::test;
using namespace lockstep::serve;
using Catch::Matchers::Contains;

namespace {

constexpr std::size_t row_count = 50, batch_rows = 4;

/// Random images of a network's size. Row 20 cannot be read if `broken`.
class RandomRows final : public InputRows {
 public:
  RandomRows(const nn::Network& network, bool broken) : broken_(broken) {
    info_.rows = row_count;
    info_.height = network.input.height;
    info_.width = network.input.width;
    info_.channels = network.input.channels;
    for (std::size_t k = 0; k < network.classes; ++k) info_.classes.push_back(std::to_string(k));
  }
  const data::DataSetInfo& info() const override { return info_; }
  std::int32_t label(std::size_t row) const override {
    return static_cast<std::int32_t>(row % info_.classes.size());
  }
  data::MakeRow row_maker() const override {
    return [this](std::uint64_t, std::size_t row, std::span<std::uint8_t> image) {
      if (broken_ && row == 20) throw data::BadRow("row 20 is broken");
      for (std::size_t i = 0; i < image.size(); ++i)
        image[i] = static_cast<std::uint8_t>(draw(1, row, i, Draw::synth));
    };
  }
  std::string name(std::size_t row) const override { return std::to_string(row) + ".png"; }
  std::size_t name_bytes() const override { return 6; }
  bool labelled() const override { return true; }
  std::string fingerprint() const override { return "50 random rows"; }

 private:
  data::DataSetInfo info_;
  bool broken_;
};

/// One worker with its backend.
struct Worker {
  Case network{plain(), batch_rows, 5};
  Compiled compiled{network, batch_rows, make_cpu_backend({std::vector<std::vector<int>>(2)}),
                    Precision::fp32};
  Inference inference{*compiled.backend, network.network, compiled.program->spec(),
                      *compiled.parameters};

  Predicted work(PredictJob& job, const std::function<bool(double)>& stop) {
    return job.work({.model = inference,
                     .device = compiled.backend->device(),
                     .readers = 2,
                     .bind_reader = {},
                     .stop = stop});
  }
};

PredictSpec spec_for(const std::filesystem::path& out, const InputRows& of) {
  return {.out = out,
          .classes = of.info().classes,
          .batch = batch_rows,
          .piece_rows = 8,
          .top = 2,
          .logits = true,
          .csv = true,
          .model = "weights = 1\n"};
}

bool never(double) { return false; }

PredictionColumns columns_of(const InputRows& of) {
  return {.top = 2, .logits = of.info().classes.size(), .labels = true, .name_bytes = 6};
}

}  // namespace

TEST_CASE("what three workers predict together has the bytes of what one does", "[cpu][predict]") {
  const Folder folder;
  const RandomRows input(plain(), false);
  Worker alone;
  PredictJob first(spec_for(folder.path / "one", input), input);
  CHECK_FALSE(first.finished());
  const Predicted one = alone.work(first, never);
  CHECK(
      (one.finished && one.rows == row_count && one.own_rows == row_count && one.own_pieces == 7));

  std::atomic<std::size_t> own{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      Worker worker;
      PredictJob job(spec_for(folder.path / "three", input), input);
      own += worker.work(job, never).own_pieces;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(own == 7);
  for (const char* file : {"predictions.h5", "predictions.csv", "predict.json"})
    CHECK(read_text(folder.path / "one" / file) == read_text(folder.path / "three" / file));
  CHECK_FALSE(std::filesystem::exists(folder.path / "one/claims"));
}

TEST_CASE("a row's predictions are what the network says of it, by the rule of top-1",
          "[cpu][predict]") {
  const Folder folder;
  const RandomRows input(plain(), false);
  Worker worker;
  PredictJob job(spec_for(folder.path, input), input);
  const Predicted all = worker.work(job, never);
  const Predictions got = read_part(folder.path / "predictions.h5", columns_of(input));
  const std::size_t classes = input.info().classes.size(), bytes = input.info().row_bytes();
  std::vector<std::uint8_t> images(batch_rows * bytes);
  const data::MakeRow make = input.row_maker();
  std::uint64_t right = 0;
  for (std::size_t row = 0; row < row_count; ++row) {
    const std::size_t place = row % batch_rows;
    if (place == 0) {
      std::fill(images.begin(), images.end(), std::uint8_t{0});
      for (std::size_t r = 0; r < batch_rows && row + r < row_count; ++r)
        make(0, row + r, std::span(images).subspan(r * bytes, bytes));
      worker.inference.run({.images = images.data(), .rows = batch_rows, .capacity = batch_rows});
    }
    const auto logits = worker.inference.logits(place);
    REQUIRE(std::equal(logits.begin(), logits.end(), &got.logits[row * classes]));
    const auto first = static_cast<std::size_t>(got.top_class[2 * row]);
    REQUIRE(first == worker.inference.predicted(place));
    REQUIRE(got.top_probability[2 * row] ==
            static_cast<float>(worker.inference.probabilities(place)[first]));
    REQUIRE(got.top_probability[2 * row] >= got.top_probability[2 * row + 1]);
    const auto label = static_cast<std::size_t>(input.label(row));
    right += worker.inference.predicted(place, label) == label ? 1 : 0;
  }
  CHECK((all.labelled == row_count && all.right == right));
}

TEST_CASE("a worker that is told to stop publishes no half piece, and the next one continues",
          "[cpu][predict]") {
  const Folder folder;
  const RandomRows input(plain(), false);
  Worker worker;
  PredictJob job(spec_for(folder.path, input), input);
  int asked = 0;
  const Predicted stopped = worker.work(job, [&](double) { return ++asked > 8; });
  CHECK_FALSE(stopped.finished);
  CHECK((stopped.own_pieces > 0 && stopped.own_pieces < 7));
  CHECK(names_in(folder.path / "parts").size() == stopped.own_pieces);
  CHECK(names_in(folder.path / "claims").empty());
  PredictJob again(spec_for(folder.path, input), input);
  const Predicted rest = worker.work(again, never);
  CHECK((rest.finished && rest.own_pieces == 7 - stopped.own_pieces));
  PredictJob third(spec_for(folder.path, input), input);
  CHECK(third.finished());
  CHECK(third.result().rows == row_count);
}

TEST_CASE("a row that cannot be read ends the job, or gets no class", "[cpu][predict]") {
  const Folder folder;
  const RandomRows input(plain(), true);
  Worker worker;
  PredictSpec spec = spec_for(folder.path / "strict", input);
  PredictJob strict(spec, input);
  CHECK_THROWS_WITH(worker.work(strict, never), Contains("row 20 is broken"));
  CHECK(names_in(folder.path / "strict/claims").empty());
  spec.out = folder.path / "lenient";
  spec.skip_unread = true;
  PredictJob lenient(spec, input);
  const Predicted all = worker.work(lenient, never);
  CHECK((all.finished && all.rows == row_count && all.unread == 1 && all.no_numbers == 0));
  const Predictions got = read_part(spec.out / "predictions.h5", columns_of(input));
  REQUIRE(got.unread.size() == 1);
  CHECK((got.unread[0].row == 20 && got.unread[0].reason == "row 20 is broken"));
  CHECK((got.top_class[40] == -1 && got.top_class[41] == -1 && got.top_class[42] >= 0));
  CHECK(std::isnan(got.top_probability[40]));
}

TEST_CASE("parts that are damaged, cut, foreign or no files are predicted again, to the same bytes",
          "[cpu][predict]") {
  const Folder folder;
  const RandomRows input(plain(), false);
  Worker worker;
  PredictSpec spec = spec_for(folder.path / "other", input);
  spec.model = "weights = 2\n";
  PredictJob other(spec, input);
  worker.work(other, never);
  spec = spec_for(folder.path / "one", input);
  PredictJob job(spec, input);
  worker.work(job, never);
  const auto parts = folder.path / "one/parts";
  const std::string wanted = read_text(folder.path / "one/predictions.h5");
  std::string altered = read_text(parts / "part-000000.h5");
  altered[altered.size() / 2] = static_cast<char>(altered[altered.size() / 2] ^ 1);
  write_file(parts / "part-000000.h5", altered);
  std::filesystem::resize_file(parts / "part-000001.h5", 300);
  using std::filesystem::copy_options;
  std::filesystem::copy_file(folder.path / "other/parts/part-000002.h5", parts / "part-000002.h5",
                             copy_options::overwrite_existing);
  std::filesystem::copy_file(parts / "part-000005.h5", parts / "part-000003.h5",
                             copy_options::overwrite_existing);
  std::filesystem::remove(parts / "part-000004.h5");
  REQUIRE(::mkfifo((parts / "part-000004.h5").c_str(), 0600) == 0);
  std::filesystem::rename(parts / "part-000006.h5", parts / "part-6.h5");
  std::filesystem::remove(folder.path / "one/predictions.h5");
  std::filesystem::remove(folder.path / "one/predictions.csv");
  PredictJob again(spec, input);
  const Predicted all = worker.work(again, never);
  CHECK((all.finished && all.rows == row_count && all.own_pieces == 6));
  CHECK(read_text(folder.path / "one/predictions.h5") == wanted);
}

TEST_CASE("a result that was cut or is another job's is an error that says how to get it again",
          "[cpu][predict]") {
  const Folder folder;
  const RandomRows input(plain(), false);
  Worker worker;
  const PredictSpec spec = spec_for(folder.path, input);
  PredictJob job(spec, input);
  worker.work(job, never);
  const std::filesystem::path merged = folder.path / "predictions.h5";
  const std::string wanted = read_text(merged);
  std::filesystem::resize_file(merged, 3000);
  CHECK_THROWS_WITH(job.result(), Contains("predictions.h5: ") &&
                                      Contains("remove it, and the next start makes it again"));
  std::filesystem::remove(merged);
  PredictJob again(spec, input);
  CHECK(worker.work(again, never).own_pieces == 0);
  CHECK(read_text(merged) == wanted);
}

TEST_CASE("predictions of which nothing says what they are of are joined by no job",
          "[cpu][predict]") {
  const Folder folder;
  const RandomRows input(plain(), false);
  Worker worker;
  PredictSpec spec = spec_for(folder.path, input);
  PredictJob job(spec, input);
  worker.work(job, never);
  std::filesystem::remove(folder.path / "predict.json");
  const auto refused =
      Contains("has predictions, but predict.json, which says of what, is missing");
  CHECK_THROWS_WITH(PredictJob(spec, input), refused);
  for (const char* file : {"predictions.h5", "predictions.csv"}) {
    std::filesystem::remove(folder.path / file);
    CHECK_THROWS_WITH(PredictJob(spec, input), refused);
  }
  CHECK(names_in(folder.path) == std::vector<std::string>{"parts"});
  std::filesystem::remove_all(folder.path / "parts");
  CHECK_NOTHROW(PredictJob(spec, input));
}

TEST_CASE("a folder takes one model, one data set and one set of options", "[cpu][predict]") {
  const Folder folder;
  const RandomRows input(plain(), false);
  const PredictSpec spec = spec_for(folder.path, input);
  const PredictJob job(spec, input);
  PredictSpec other = spec;
  other.model = "weights = 2\n";
  CHECK_THROWS_WITH(PredictJob(other, input),
                    Contains("predict.json") && Contains("weights = \"1\", and now it is \"2\""));
  other = spec;
  other.batch = 8;
  CHECK_THROWS_WITH(PredictJob(other, input), Contains("batch = 4, and now it is 8"));
  other = spec;
  std::swap(other.classes[0], other.classes[1]);
  CHECK_THROWS_WITH(PredictJob(other, input), Contains("with classes = "));
  write_text_atomically(folder.path / "predict.json", "[");
  CHECK_THROWS_WITH(PredictJob(spec, input), Contains("predict.json: is not JSON"));
}

TEST_CASE("only a part's own name says that it is there", "[swarm]") {
  const SwarmFolder folder{"out"};
  CHECK(folder.number_of(folder.part(7)) == 7);
  CHECK(folder.number_of(folder.part(1'234'567)) == 1'234'567);
  for (const char* name : {"part-7.h5", "part-0000007.h5", "part-.h5", "part-000007.h5.tmp1-0"})
    CHECK_FALSE(folder.number_of(folder.parts() / name));
}

TEST_CASE("pieces cover each row once, and all but the last are whole batches", "[swarm]") {
  for (const std::size_t rows : {1u, 5u, 64u, 4097u, 300'000u})
    for (const std::size_t batch : {1u, 7u, 64u, 5000u})
      for (const std::size_t each : {0u, 1u, 100u}) {
        const Pieces pieces(rows, batch, each);
        std::size_t covered = 0;
        for (std::size_t number = 0; number < pieces.count(); ++number) {
          const Piece piece = pieces.piece(number);
          REQUIRE((piece.number == number && piece.first == covered && piece.rows > 0));
          REQUIRE((piece.rows % batch == 0 || number + 1 == pieces.count()));
          covered += piece.rows;
        }
        REQUIRE(covered == rows);
      }
}
