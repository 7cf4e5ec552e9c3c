// How a GPU runs a training whose configuration leaves that open.
#include <catch2/catch.hpp>

#include <filesystem>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/waits/silent.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/run.hpp"
#include "ports/cuda/runtime/stream.hpp"
#include "tests/emulated/cuda/gpu.hpp"
#include "tests/unit/data/shard_fixture.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::size_t rows = 2, steps_of_an_epoch = 5;

class GpuWorld final : public comm::SilentCommunicator {
 public:
  GpuWorld() : SilentCommunicator(0, 1, stream_) {}

 private:
  cuda::CudaStream stream_;
};

/// What a run left in its folder, and how many graphs it recorded.
struct Run {
  config::Config asked, decided;
  std::size_t recorded = 0;
};

config::Config read_toml_of(const std::filesystem::path& file, config::Config on_top_of) {
  config::apply_toml(on_top_of, read_text(file), file.string());
  return on_top_of;
}

Run run(const Folder& folder, config::Config config) {
  config.model = "resnet20";
  config.data.train = (folder.path / "train.h5").string();
  config.batch = rows;
  config.data.workers = 1;
  train::RunSpec spec;
  spec.config = config;
  spec.binding_report = [](const auto&) { return std::string("{}"); };
  spec.started_s = now_s();
  const auto backend = backend::make_cuda_backend(0);
  GpuWorld world;
  comm::LoneControl control;
  const std::size_t before = emulated::counts().recorded;
  train::run_training(spec, *backend, world, control);
  const train::RunDirectory directory(config.out);
  Run result;
  result.asked = read_toml_of(directory.config(), {});
  result.decided = read_toml_of(directory.decisions(), result.asked);
  result.recorded = emulated::counts().recorded - before;
  return result;
}

}  // namespace

TEST_CASE("a training on a GPU records its steps, measures engines and fuses, unless told not to",
          "[graph]") {
  using enum config::Switch;
  const Folder folder;
  data::DataSetInfo info = small_info();
  info.height = info.width = 8;
  write_shard(folder.path / "train.h5", info, 0, rows * steps_of_an_epoch);
  const auto plans = folder.path / "plans.txt";
  config::Config config;
  config.epochs = 1;
  config.precision = backend::Precision::fp16;
  config.tune_cache = plans.string();
  config.out = (folder.path / "plain").string();
  config::Config plain = config;
  plain.graph = plain.tune = plain.fuse_norms = off;
  plain.tune_cache = "";
  CHECK(run(folder, plain).recorded == 0);
  CHECK_FALSE(std::filesystem::exists(plans));

  config.out = (folder.path / "usual").string();
  const Run usual = run(folder, config);
  CHECK(usual.recorded > 0);
  CHECK(std::filesystem::exists(plans));
  CHECK((usual.asked.graph == automatic && usual.asked.tune == automatic));
  CHECK((usual.decided.graph == on && usual.decided.tune == on));
  CHECK(usual.decided.fuse_norms == on);

  // Its steps have the bits that they had, and are recorded nevertheless.
  config.resume = (folder.path / "plain" / "checkpoints").string();
  for (const auto& file : std::filesystem::directory_iterator(config.resume))
    config.resume = file.path().string();
  config.out = (folder.path / "resumed").string();
  config.epochs = 2;
  const Run resumed = run(folder, config);
  CHECK(resumed.decided.graph == on);
  CHECK(resumed.decided.tune == off);
  CHECK(resumed.decided.fuse_norms == off);
}
