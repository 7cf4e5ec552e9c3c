#include <catch2/catch.hpp>
#include <set>

#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/waits/silent.hpp"
#include "lockstep/device/host_stream.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/train/trainer.hpp"

using namespace lockstep;
using namespace lockstep::backend;

namespace {

/// A step of its spec's rows: the times that a trainer reports, over `communicator`.
observe::StepTimes times_of_step(Backend& backend, comm::Communicator& communicator,
                                 std::size_t rows) {
  train::TrainerSpec spec;
  spec.network = nn::resnet(nn::usual_resnet("resnet20", 8, 4));
  spec.program.batch = rows;
  spec.program.mean = spec.program.stddev = {0.5f, 0.5f, 0.5f};
  spec.bucket_bytes = 100'000;
  train::Trainer trainer(spec, backend, communicator);
  const std::vector<std::uint8_t> images(rows * spec.network.input.count());
  const std::vector<data::Target> targets(rows, {1, 1, 1});
  data::Batch batch;
  batch.images = images.data();
  batch.targets = targets.data();
  batch.rows = batch.capacity = rows;
  const train::StepReport report =
      trainer.step(batch, rows * static_cast<std::size_t>(communicator.world()), 0.1f);
  CHECK(report.metrics.rows == rows);
  CHECK(report.metrics.loss == 0);
  return report.times;
}

}  // namespace

TEST_CASE("a step of the clock takes what its pace says, on the stream and on the host's clock",
          "[clock]") {
  const auto backend = make_clock_backend(LinePace{0.5, 6});
  device::HostStream network;
  comm::SilentCommunicator silent(0, 2, network);
  const double began_ms = now_ms();
  const observe::StepTimes times = times_of_step(*backend, silent, 8);
  CHECK(now_ms() - began_ms >= 10);
  CHECK(times.forward_ms + times.backward_ms == Approx(10).epsilon(1e-6));
  CHECK(times.exposed_comm_ms == Approx(0).margin(1e-9));
  CHECK(times.update_ms == Approx(0).margin(1e-9));
}

TEST_CASE("a step of the clock updates for as long as its profile says", "[clock]") {
  MeasuredPace pace;
  pace.model = "resnet20";
  pace.rows = 8;
  pace.update_ms = 100;
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 8, 4));
  MeasuredPace::Step all{"all", 1, {}};
  for (const nn::Tensor& tensor : nn::tensors(network)) all.final_tensors.push_back(tensor.name);
  pace.tape = {{"conv1", 1, {}}, all};
  pace.forward_steps = 1;
  const auto backend = make_clock_backend(pace);
  device::HostStream stream;
  comm::SilentCommunicator silent(0, 2, stream);
  CHECK(times_of_step(*backend, silent, 8).update_ms == Approx(100).epsilon(1e-9));
}

TEST_CASE("a group that is split from a silent one has one rank", "[clock]") {
  device::HostStream stream;
  comm::SilentCommunicator silent(3, 8, stream);
  const auto group = silent.split(1, 3, "odd");
  CHECK((group->rank() == 0 && group->world() == 1));
  CHECK_FALSE(silent.split(std::nullopt, 0, "none"));
  CHECK_THROWS_AS(silent.split(-1, 0, "negative"), InputError);
}

TEST_CASE("the clock's memory holds floats of any place, and costs two megabytes at most",
          "[clock]") {
  const auto backend = make_clock_backend(LinePace{0.5, 6});
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet50", 0, 0));
  const auto parameters = backend->make_parameters(network, Precision::fp32);
  const nn::ArenaLayout& layout = parameters->layout();
  REQUIRE(layout.size > 25'000'000);
  float* gradients = parameters->device_pointer(Part::gradients);
  gradients[0] = 3;
  gradients[layout.size - 1] = 4;
  CHECK(gradients[std::size_t{512} << 10] == 3);  // 2 MB on: the same memory
  CHECK(gradients[layout.size - 1] == 4);
  std::vector<float> plain(layout.slices[0].tensor.count(), 7);
  parameters->import_slice(Part::weights, 0, plain);
  parameters->export_slice(Part::weights, 0, plain);
  CHECK(plain == std::vector<float>(plain.size(), 0));
}

TEST_CASE("an event of the clock says how long it is still due", "[clock]") {
  const auto backend = make_clock_backend(LinePace{0, 1000});
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 8, 4));
  const auto parameters = backend->make_parameters(network, Precision::fp32);
  const auto program = backend->compile(network, ProgramSpec(), *parameters);
  device::Stream& compute = backend->device().compute();
  CHECK(compute.record()->done());
  data::Batch batch;
  batch.rows = batch.capacity = 1;
  program->load(batch);
  for (const TapeStep& step : program->forward()) step.run();
  const auto event = compute.record();
  CHECK_FALSE(event->done());
  CHECK(event->due_in_s() > 0.1);
  CHECK(event->due_in_s() < 1);
}

TEST_CASE("the clock counts the rows of batches with targets only", "[clock][program]") {
  const auto backend = make_clock_backend(LinePace{0, 0});
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 8, 4));
  const auto parameters = backend->make_parameters(network, Precision::fp32);
  ProgramSpec spec;
  spec.training = false;
  spec.batch = 3;
  const auto program = backend->compile(network, spec, *parameters);
  const std::vector<data::Target> targets(3, {1, 1, 1});
  data::Batch batch;
  batch.rows = batch.capacity = 3;
  program->load(batch);
  CHECK(program->take_metrics().rows == 0);
  batch.targets = targets.data();
  program->load(batch);
  CHECK(program->take_metrics().rows == 3);
}

TEST_CASE("on the clock, stages take together what their network takes", "[clock]") {
  const auto backend = make_clock_backend(LinePace{20, 50});
  const nn::Network whole = nn::resnet(nn::usual_resnet("resnet20", 8, 4));
  const auto tapes_of = [&](const nn::Network& network, std::size_t later,
                            const Recompute& recompute) {
    ProgramSpec spec;
    spec.batch = 4;
    spec.weights_later = later;
    spec.recompute = recompute;
    spec.whole = &whole;
    const auto parameters = backend->make_parameters(network, Precision::fp32);
    const auto program = backend->compile(network, spec, *parameters);
    std::vector<double> ms;
    std::set<std::size_t> slices;
    for (const Tape* tape :
         {&program->forward(), &program->backward(false), &program->weight_gradients(false)}) {
      const auto timeline = backend->device().make_timeline();
      timeline->mark();
      for (const TapeStep& step : *tape) {
        step.run();
        for (const std::size_t slice : step.final_slices) CHECK(slices.insert(slice).second);
      }
      timeline->mark();
      ms.push_back(timeline->laps_ms().at(0));
    }
    CHECK(slices.size() == parameters->layout().slices.size());
    return ms;
  };
  for (const std::size_t later : {0, 1}) {
    std::vector<double> sums(3);
    for (const nn::Network& stage : nn::split(whole, nn::balanced_cuts(whole, 4))) {
      const std::vector<double> ms = tapes_of(stage, later, {});
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += ms[i];
    }
    const std::vector<double> alone = tapes_of(whole, later, {});
    for (std::size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] == Approx(alone[i]).epsilon(0.05));
    CHECK(alone[0] + alone[1] + alone[2] == Approx(130).epsilon(1e-6));
    CHECK(alone[2] >= (later > 0 ? 15 : 0));
    CHECK(alone[2] <= (later > 0 ? 45 : 0));
  }
  const double forward = tapes_of(whole, 0, {})[0];
  const auto again = [&](std::size_t segments) {
    return tapes_of(whole, 0, {.mode = Recompute::Mode::segments, .segments = segments})[1] -
           tapes_of(whole, 0, {})[1];
  };
  CHECK(again(1) == Approx(0).margin(1e-6));
  CHECK(again(2) == Approx(forward / 2).epsilon(0.2));
  CHECK(again(4) == Approx(forward * 3 / 4).epsilon(0.2));
}

TEST_CASE("what has no meaning on the clock is an error", "[clock]") {
  const auto backend = make_clock_backend(LinePace{1, 1});
  const nn::Network network = nn::resnet(nn::usual_resnet("resnet20", 8, 4));
  const auto parameters = backend->make_parameters(network, Precision::fp32);
  ProgramSpec spec;
  spec.recompute.mode = Recompute::Mode::automatic;
  CHECK_THROWS_WITH(backend->compile(network, spec, *parameters),
                    Catch::Contains("has no memory to limit"));
  spec.recompute = {.mode = Recompute::Mode::segments, .segments = 100};
  CHECK_THROWS_WITH(backend->compile(network, spec, *parameters),
                    Catch::Contains("can be cut into at most 24 segments"));
  CHECK(is_rehearsal(backend->description()));
  CHECK_FALSE(is_rehearsal("cpu: oneDNN"));
}
