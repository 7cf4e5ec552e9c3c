#include "tests/mpi/train/train_fixture.hpp"

#include <cmath>

#include <unistd.h>

#include "lockstep/base/rng.hpp"
#include "lockstep/data/shard/shard_writer.hpp"
#include "lockstep/nn/resnet.hpp"

namespace lockstep::test {
using namespace lockstep::backend;

Rows::Rows(std::size_t count) : images(count * image_side * image_side * 3), targets(count) {
  for (std::size_t i = 0; i < images.size(); ++i)
    images[i] = static_cast<std::uint8_t>(draw(7, 0, i, Draw::synth));
  for (std::size_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::int32_t>((i * 7) % class_count);
    targets[i] = {label, label, 1};
  }
}

data::Batch Rows::batch(std::size_t first, std::size_t count) const {
  data::Batch batch;
  batch.images = images.data() + first * image_side * image_side * 3;
  batch.targets = targets.data() + first;
  batch.rows = batch.capacity = count;
  return batch;
}

train::TrainerSpec small_trainer(std::size_t rows) {
  nn::ResNetSpec net;
  net.model = "resnet20";
  net.classes = class_count;
  net.height = net.width = image_side;
  train::TrainerSpec spec;
  spec.network = nn::resnet(net);
  spec.program.batch = rows;
  spec.program.mean = {0.5f, 0.5f, 0.5f};
  spec.program.stddev = {0.25f, 0.25f, 0.25f};
  spec.weight_decay = 1e-4f;
  spec.bucket_bytes = 100'000;
  return spec;
}

void copy_part(train::Trainer& from, train::Trainer& to, Part part, std::size_t first) {
  std::vector<float> plain;
  const auto& slices = from.parameters().layout().slices;
  for (std::size_t s = first; s < slices.size(); ++s) {
    plain.resize(slices[s].tensor.count());
    from.parameters().export_slice(part, s, plain);
    to.parameters().import_slice(part, s, plain);
  }
}

std::vector<float> learned_values(train::Trainer& trainer, Part part) {
  std::vector<float> all, plain;
  const nn::ArenaLayout& layout = trainer.parameters().layout();
  for (std::size_t i = 0; i < layout.learned_slices; ++i) {
    plain.resize(layout.slices[i].tensor.count());
    trainer.parameters().export_slice(part, i, plain);
    all.insert(all.end(), plain.begin(), plain.end());
  }
  return all;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

SharedShard::SharedShard(comm::Control& control, std::size_t count) : control_(control) {
  const auto mine =
      std::filesystem::temp_directory_path() / ("lockstep-train-test-" + std::to_string(getpid()));
  folder_ = control.broadcast(mine.string(), "test folder");
  if (control.rank() == 0) {
    std::filesystem::create_directories(folder_);
    data::DataSetInfo info;
    info.height = info.width = image_side;
    info.channels = 3;
    for (std::size_t c = 0; c < class_count; ++c)
      info.classes.push_back("class " + std::to_string(c));
    info.mean = {0.5f, 0.5f, 0.5f};
    info.stddev = {0.25f, 0.25f, 0.25f};
    const Rows rows(count);
    data::ShardWriter writer(path(), info, count);
    for (std::size_t i = 0; i < count; ++i)
      writer.write({rows.images.data() + i * info.row_bytes(), info.row_bytes()},
                   rows.targets[i].label_a);
    writer.finish();
  }
  control.barrier("test shard");
}

SharedShard::~SharedShard() {
  control_.barrier("end of test shard");
  std::error_code ignored;
  if (control_.rank() == 0) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace lockstep::test
