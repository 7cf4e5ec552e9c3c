#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "lockstep/model/checkpoint.hpp"
#include "tests/support/folder_fixture.hpp"

namespace lockstep::test {
using namespace lockstep::backend;

/// Parameters in plain memory, with padding after each slice as a backend may have it.
class FakeParameters final : public Parameters {
 public:
  explicit FakeParameters(std::vector<nn::Tensor> tensors, float start = 0) {
    for (const nn::Tensor& tensor : tensors) {
      layout_.slices.push_back({tensor, layout_.size, tensor.count() + 3});
      layout_.size += tensor.count() + 3;
    }
    for (auto& values : values_) {
      values.resize(layout_.size);
      std::iota(values.begin(), values.end(), start);
      start += 1000;
    }
  }
  const nn::ArenaLayout& arena() const override { return layout_; }
  float* device_pointer(Part part) override { return of(part).data(); }
  void import_own(Part part, std::size_t slice, std::span<const float> plain) override {
    std::copy(plain.begin(), plain.end(), of(part).begin() + offset(slice));
  }
  void export_own(Part part, std::size_t slice, std::span<float> plain) const override {
    const auto& values = values_[static_cast<std::size_t>(part)];
    std::copy_n(values.begin() + offset(slice), plain.size(), plain.begin());
  }
  void start_average() override {
    of(Part::average) = of(Part::weights);
    has_average_ = true;
  }
  bool has_average() const override { return has_average_; }
  void start_second_moments() override { has_second_moments_ = true; }
  bool has_second_moments() const override { return has_second_moments_; }
  std::uint32_t own_hash() const override { return 0; }

  std::vector<float> plain(Part part, std::size_t slice) const {
    std::vector<float> values(layout_.slices[slice].tensor.count());
    export_slice(part, slice, values);
    return values;
  }

 private:
  std::vector<float>& of(Part part) { return values_[static_cast<std::size_t>(part)]; }
  std::ptrdiff_t offset(std::size_t slice) const {
    return static_cast<std::ptrdiff_t>(layout_.slices[slice].offset);
  }
  nn::ArenaLayout layout_;
  std::vector<float> values_[5];
  bool has_average_ = false, has_second_moments_ = false;
};

inline std::vector<nn::Tensor> small_model() {
  return {{"fc.weight", nn::Role::linear_weight, 0, {3, 4}},
          {"conv1.weight", nn::Role::conv_weight, 0, {2, 3, 3, 3}},
          {"bn1.running_mean", nn::Role::running_mean, 0, {2}}};
}

inline model::CheckpointHeader some_header() {
  model::CheckpointHeader header;
  header.progress = {.step = 123,
                     .epoch = 3,
                     .batch = 7,
                     .loss_sum = 1.0 / 3,
                     .rows = 896,
                     .top1 = 500,
                     .bad_rows = {"a.h5: row 3", "b.h5: row 4"},
                     .best_score = 0.875,
                     .best_epoch = 2};
  header.config = "model = \"resnet20\"\n";
  header.backend = "cpu, a description";
  header.build = "0123456789abcdef";
  header.world = 6;
  header.replicas = 2;
  header.input.rows = 50000;
  header.input.rows_hash = 0x89abcdef;
  header.metrics_bytes = 4711;
  header.input.channels = 3;
  header.input.height = header.input.width = 32;
  header.input.classes = {"circle", "square with a blank"};
  header.input.mean = {0.1f, 0.2f, 0.3f};
  header.input.stddev = {0.4f, 0.5f, 0.6f};
  return header;
}

}  // namespace lockstep::test
