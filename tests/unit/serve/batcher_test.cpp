// Batches of several requests: each row has the bits that it has alone, in whatever company.
#include "serve/batching/batcher.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <thread>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/infer/ladder.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::infer;
using namespace lockstep::test;
using namespace lockstep::serve;

namespace {

constexpr std::size_t batch_size = 6;

ProgramSpec evaluation(const nn::Network& network, Precision precision) {
  ProgramSpec spec;
  spec.batch = batch_size;
  spec.precision = precision;
  spec.training = false;
  spec.mean.assign(network.input.channels, 0.5f);
  spec.stddev.assign(network.input.channels, 0.25f);
  return spec;
}

/// A network that is served, and images for it.
struct Served {
  explicit Served(const nn::Network& network, Precision precision = Precision::fp32,
                  std::size_t threads = 2)
      : c(network, 4, 5),
        compiled(c, 4, make_cpu_backend({std::vector<std::vector<int>>(threads)}), precision),
        lane(std::make_shared<Lane>()) {
    auto made = std::make_unique<Ladder>(*compiled.backend, c.network,
                                         evaluation(c.network, precision), *compiled.parameters);
    while (!made->prepare()) {
    }
    ladder = made.get();
    lane->model = std::move(made);
    lane->row_bytes = c.network.input.count();
    lane->batch = ladder->largest();
    lane->images = compiled.backend->device().allocate_pinned(lane->batch * lane->row_bytes);
    lane->classes = c.network.classes;
    lane->statistics = std::make_shared<Statistics>();
  }
  std::vector<std::uint8_t> image(std::size_t number) const {
    std::vector<std::uint8_t> pixels(lane->row_bytes);
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<std::uint8_t>(draw(7, number, i, Draw::synth));
    return pixels;
  }
  std::vector<float> alone(std::size_t number) const {
    const auto pixels = image(number);
    ladder->run({.images = pixels.data(), .rows = 1, .capacity = 1});
    const auto logits = ladder->logits(0);
    return {logits.begin(), logits.end()};
  }
  /// Image 0 at this place of a batch of other ones.
  std::vector<float> among_others(std::size_t place, std::size_t rows) const {
    std::vector<std::uint8_t> pixels;
    for (std::size_t row = 0; row < rows; ++row) {
      const auto one = image(row == place ? 0 : 1 + row);
      pixels.insert(pixels.end(), one.begin(), one.end());
    }
    ladder->run({.images = pixels.data(), .rows = rows, .capacity = rows});
    const auto logits = ladder->logits(place);
    return {logits.begin(), logits.end()};
  }
  /// A request for images [first, first + rows), which notes how it ended.
  std::shared_ptr<RowsJob> job(std::size_t first, std::size_t rows) {
    auto made = std::make_shared<RowsJob>();
    for (std::size_t row = 0; row < rows; ++row) {
      const auto pixels = image(first + row);
      made->images.insert(made->images.end(), pixels.begin(), pixels.end());
    }
    made->rows = rows;
    made->arrived_s = now_s();
    made->deadline_s = now_s() + 600;
    made->ended = [this, key = made.get()](RowsJob::End end) { ends[key].push_back(end); };
    return made;
  }

  const Case c;
  const Compiled compiled;
  const std::shared_ptr<Lane> lane;
  Ladder* ladder = nullptr;  ///< the lane's
  std::map<const RowsJob*, std::vector<RowsJob::End>> ends;
};

}  // namespace

TEST_CASE("a ladder's sizes give a row the same bits at each place and in any company",
          "[serve][cpu]") {
  const auto precision = GENERATE(Precision::fp32, Precision::bf16);
  if (precision == Precision::bf16 && !has_bf16()) return;
  const std::size_t threads = GENERATE(1u, 2u, 4u);
  for (const nn::Network& network : all_sketches()) {
    const Served served(network, precision, threads);
    Ladder& ladder = *served.ladder;
    REQUIRE(!ladder.sizes().empty());
    CHECK(std::is_sorted(ladder.sizes().begin(), ladder.sizes().end()));
    CHECK(ladder.largest() <= batch_size);
    const std::vector<float> want = served.alone(0);
    for (const std::size_t size : ladder.sizes())
      for (std::size_t place = 0; place < size; ++place)
        CHECK(served.among_others(place, size) == want);
    // Batches that are cut, and padded where their memory ends.
    for (const std::size_t rows : {5u, 7u, 20u}) CHECK(served.among_others(rows - 1, rows) == want);
  }
}

TEST_CASE("requests of any number of rows share batches, and each gets its own bits",
          "[serve][cpu]") {
  Served served(plain());
  Batcher batcher(1000);
  batcher.add(served.lane);
  const std::vector<std::size_t> sizes = {1, 4, 13, 1, 2, 6, 1};
  std::vector<std::shared_ptr<RowsJob>> jobs;
  std::size_t rows = 0;
  for (const std::size_t size : sizes) {
    jobs.push_back(served.job(rows, size));
    REQUIRE(batcher.put(served.lane, jobs.back()));
    rows += size;
  }
  CHECK(batcher.waiting_rows(*served.lane) == rows);
  while (batcher.waiting_rows(*served.lane) > 0) batcher.turn(0);
  std::size_t first = 0;
  for (const auto& job : jobs) {
    CHECK(served.ends[job.get()] == std::vector{RowsJob::End::computed});
    for (std::size_t row = 0; row < job->rows; ++row) {
      const auto logits =
          std::span(job->logits).subspan(row * served.lane->classes, served.lane->classes);
      CHECK(std::ranges::equal(logits, served.alone(first + row)));
    }
    first += job->rows;
  }
  const ModelFigures figures = served.lane->statistics->figures();
  const std::size_t most = served.lane->batch;
  CHECK(figures.rows == rows);
  double computed_s = 0;
  for (const auto& job : jobs) {
    CHECK((job->waited_s > 0 && job->computed_s > 0));
    computed_s += job->computed_s;
  }
  CHECK(computed_s >= figures.compute.seconds);  // a batch counts for each of its jobs
  CHECK(figures.compute.count == (rows + most - 1) / most);
}

TEST_CASE("a batch waits for a request on its way, until it is queued or gone", "[serve][cpu]") {
  Served served(plain());
  Batcher batcher(100);
  batcher.add(served.lane);
  served.lane->whole_batch_s = 1e5;
  const auto ask = [&](std::size_t row, const std::shared_ptr<Passage>& passage) {
    const auto job = served.job(row, 1);
    job->passage = passage;
    REQUIRE(batcher.put(served.lane, job));
  };
  const auto rows = [&] { return served.lane->statistics->figures().rows; };
  const auto first = std::make_shared<Passage>(batcher, served.lane);
  const auto second = std::make_shared<Passage>(batcher, served.lane);
  const auto third = std::make_shared<Passage>(batcher, served.lane);
  ask(0, first);
  batcher.turn(0);
  CHECK(rows() == 0);  // two more are on their way
  std::thread others([&] {
    third->end();
    ask(1, second);
  });
  while (rows() == 0) batcher.turn(600);
  others.join();
  CHECK((rows() == 2 && served.lane->statistics->figures().compute.count == 1));
  served.lane->whole_batch_s = 1e5;
  ask(2, nullptr);
  batcher.turn(0);
  CHECK(rows() == 2);  // both answers are being written
  first->end();
  second->end();
  batcher.turn(600);  // neither asks again
  CHECK(rows() == 3);
}

TEST_CASE("a batch waits for nothing else, at most for half of a batch, and not twice in vain",
          "[serve][cpu]") {
  Served served(plain());
  Batcher batcher(100);
  batcher.add(served.lane);
  const auto rows = [&] { return served.lane->statistics->figures().rows; };
  const auto wait_for = [&](double whole_batch_s, std::size_t number) {
    served.lane->whole_batch_s = whole_batch_s;
    REQUIRE(batcher.put(served.lane, served.job(0, number)));
    batcher.turn(600);
    return rows();
  };
  CHECK(wait_for(1e5, 1) == 1);
  const Passage slow(batcher, served.lane);
  served.lane->whole_batch_s = 1e5;
  CHECK(batcher.longest_wait_s(*served.lane) == 5e4);
  CHECK(wait_for(1e5, served.lane->batch) == 1 + served.lane->batch);
  CHECK(wait_for(0.01, 1) == 2 + served.lane->batch);
  CHECK(wait_for(1e5, 1) == 3 + served.lane->batch);
}

TEST_CASE("a batch waits for what a client may ask that just got its answer, until it asks",
          "[serve][cpu]") {
  Served served(plain());
  Batcher batcher(100);
  batcher.add(served.lane);
  served.lane->whole_batch_s = 1e5;
  Passage(batcher, served.lane).end();
  served.lane->left_until_s = 1e18;
  REQUIRE(batcher.put(served.lane, served.job(0, 1)));
  batcher.turn(0);
  CHECK(served.lane->statistics->figures().rows == 0);
  Passage next(batcher, served.lane);  // it asks
  CHECK((served.lane->left == 0 && served.lane->on_their_way == 1));
  next.end();
  batcher.turn(600);  // no other request comes
  CHECK(served.lane->statistics->figures().rows == 1);
}

TEST_CASE("a full queue takes no more, and takes again what fits when it is shorter",
          "[serve][cpu]") {
  Served served(plain());
  Batcher batcher(5);
  batcher.add(served.lane);
  CHECK(!batcher.put(served.lane, served.job(0, 6)));
  CHECK(batcher.put(served.lane, served.job(0, 3)));
  CHECK(!batcher.put(served.lane, served.job(0, 3)));
  CHECK(batcher.put(served.lane, served.job(0, 2)));
  while (batcher.waiting_rows(*served.lane) > 0) batcher.turn(0);
  CHECK(batcher.put(served.lane, served.job(0, 5)));
  batcher.turn(0);
}

TEST_CASE("a request that waits beyond its deadline ends late, once, and is not computed",
          "[serve][cpu]") {
  Served served(plain());
  Batcher batcher(100);
  batcher.add(served.lane);
  const auto late = served.job(0, 2), in_time = served.job(2, 2);
  late->deadline_s = now_s() - 1;
  REQUIRE(batcher.put(served.lane, late));
  REQUIRE(batcher.put(served.lane, in_time));
  while (batcher.waiting_rows(*served.lane) > 0) batcher.turn(0);
  batcher.end_late(now_s());
  CHECK(served.ends[late.get()] == std::vector{RowsJob::End::late});
  CHECK(served.ends[in_time.get()] == std::vector{RowsJob::End::computed});
  CHECK(served.lane->statistics->figures().rows == 2);
}

TEST_CASE("two models take turns, and one that is given up still answers what it has",
          "[serve][cpu]") {
  Served first(plain()), second(bottlenecks());
  Batcher batcher(100);
  auto other = std::make_shared<Lane>(std::move(*second.lane));
  batcher.add(first.lane);
  batcher.add(other);
  const auto a = first.job(0, 20), b = second.job(0, 1);
  REQUIRE(batcher.put(first.lane, a));
  REQUIRE(batcher.put(other, b));
  const std::weak_ptr<Lane> given_up = other;
  other.reset();
  batcher.turn(0);
  batcher.turn(0);
  CHECK(second.ends[b.get()] == std::vector{RowsJob::End::computed});
  CHECK(first.ends[a.get()].empty());
  while (batcher.waiting_rows(*first.lane) > 0) batcher.turn(0);
  batcher.turn(0);
  CHECK(first.ends[a.get()] == std::vector{RowsJob::End::computed});
  CHECK(given_up.expired());
}

TEST_CASE("what still waits when the batcher ends is told that it failed", "[serve][cpu]") {
  Served served(plain());
  const auto job = served.job(0, 1);
  {
    Batcher batcher(100);
    batcher.add(served.lane);
    REQUIRE(batcher.put(served.lane, job));
  }
  CHECK(served.ends[job.get()] == std::vector{RowsJob::End::failed});
}
