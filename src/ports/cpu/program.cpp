#include "ports/cpu/program.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "ports/cpu/units/pool_runner.hpp"

namespace lockstep::cpu {

Storage storage_of(backend::Precision precision) {
  require(
      precision == backend::Precision::fp32 || precision == backend::Precision::bf16,
      fmt::format("precision {} is not available on CPUs: use fp32 or bf16", to_string(precision)));
  return precision == backend::Precision::bf16 ? Storage::bf16 : Storage::fp32;
}

std::shared_ptr<HostMemory> SharedBlock::of_size(std::size_t bytes) {
  if (!block_ || bytes > size_) {
    block_ = std::make_shared<HostMemory>(bytes);
    size_ = bytes;
  }
  return block_;
}

CpuProgram::CpuProgram(const nn::Network& network, const backend::ProgramSpec& spec,
                       CpuParameters& parameters, Team& team, SharedBlock& block,
                       std::size_t chunk_bytes)
    : network_(network),
      spec_(spec),
      team_(team),
      context_(network_, spec_, parameters, storage_of(spec.precision), team.lanes()),
      image_(context_) {
  check(spec.batch > 0, "a program needs at least one row");
  check(parameters.storage() == context_.storage, "the parameters were made for another precision");
  context_.units = lower(network_);
  context_.regions = make_regions(network_, context_.units, spec_.batch, context_.lanes,
                                  context_.storage, chunk_bytes);
  make_runners();
  allocate(block);
  make_tapes();
}

void CpuProgram::make_runners() {
  for (std::size_t u = 0; u < context_.units.size(); ++u) {
    switch (context_.units[u].kind) {
      case UnitKind::conv:
        runners_.push_back(std::make_unique<ConvRunner>(context_, u, image_));
        break;
      case UnitKind::point:
        runners_.push_back(std::make_unique<PointRunner>(context_, u));
        break;
      case UnitKind::pool:
        runners_.push_back(std::make_unique<PoolRunner>(context_, u));
        break;
      case UnitKind::head: {
        auto head = std::make_unique<HeadRunner>(context_, u);
        head_ = head.get();
        runners_.push_back(std::move(head));
      }
    }
    context_.runners.push_back(runners_.back().get());
  }
}

void CpuProgram::allocate(SharedBlock& block) {
  context_.scratch_of_region.assign(context_.regions.size(), 0);
  for (auto& runner : runners_) runner->plan();
  context_.planner.place();
  context_.block = block.of_size(context_.planner.total());
  const std::size_t scratch =
      *std::max_element(context_.scratch_of_region.begin(), context_.scratch_of_region.end());
  for (std::size_t lane = 0; lane < context_.lanes; ++lane) {
    context_.lane_scratch.emplace_back(scratch);
    context_.lane_library_scratch.emplace_back(context_.library_scratch);
    context_.streams.emplace_back(engine());
  }
  for (auto& runner : runners_) runner->bind();
}

void CpuProgram::make_tapes() {
  for (std::size_t r = 0; r < context_.regions.size(); ++r)
    forward_.push_back({context_.regions[r].name, [this, r] { run_forward(r); }, {}});
  if (!spec_.training) return;
  for (const bool accumulate : {false, true}) {
    for (std::size_t r = context_.regions.size(); r-- > 0;) {
      const Region& region = context_.regions[r];
      backend::TapeStep step{
          region.name + " backward", [this, r, accumulate] { run_backward(r, accumulate); }, {}};
      for (const std::size_t u : region.units) {
        const auto slices = runners_[u]->slices();
        step.final_slices.insert(step.final_slices.end(), slices.begin(), slices.end());
      }
      backward_[accumulate].push_back(std::move(step));
    }
  }
}

void CpuProgram::load(const data::Batch& batch) {
  check(batch.capacity == spec_.batch,
        "the batch does not have the size that the program was compiled for");
  image_.load(batch.images);
  head_->load(batch.targets);
}

void CpuProgram::load_normalised(std::span<const float> images,
                                 std::span<const data::Target> targets) {
  check(images.size() == spec_.batch * network_.input.count() && targets.size() == spec_.batch,
        "the input does not have the size that the program was compiled for");
  image_.load_normalised(images.data());
  head_->load(targets.data());
}

void CpuProgram::run_forward(std::size_t r) {
  const Region& region = context_.regions[r];
  const auto each_unit = [&](const auto& call) {
    for (const std::size_t u : region.units) call(*runners_[u]);
  };
  team_.run([&](std::size_t lane) {
    if (lane < context_.lanes) each_unit([&](Runner& runner) { runner.before_forward(lane); });
  });
  team_.run([&](std::size_t lane) {
    if (lane >= context_.lanes) return;
    for (const Chunk& chunk : region.lanes[lane])
      each_unit([&](Runner& runner) { runner.forward(chunk); });
  });
}

void CpuProgram::run_backward(std::size_t r, bool accumulate) {
  const Region& region = context_.regions[r];
  const auto each_unit = [&](const auto& call) {
    for (std::size_t i = region.units.size(); i-- > 0;) call(*runners_[region.units[i]]);
  };
  team_.run([&](std::size_t lane) {
    if (lane < context_.lanes)
      each_unit([&](Runner& runner) { runner.before_backward(lane, accumulate); });
  });
  team_.run([&](std::size_t lane) {
    if (lane >= context_.lanes) return;
    for (const Chunk& chunk : region.lanes[lane]) {
      for (const std::size_t u : region.units) runners_[u]->recompute(chunk);
      each_unit([&](Runner& runner) { runner.backward(chunk); });
    }
  });
  team_.run([&](std::size_t lane) {
    if (lane < context_.lanes)
      each_unit([&](Runner& runner) { runner.after_backward(lane, accumulate); });
  });
}

backend::MemoryPlan CpuProgram::memory() const {
  backend::MemoryPlan plan;
  plan.activations = context_.planner.total();
  plan.without_reuse = context_.planner.without_reuse();
  const std::size_t scratch =
      *std::max_element(context_.scratch_of_region.begin(), context_.scratch_of_region.end());
  plan.workspace = context_.lanes * (scratch + context_.library_scratch);
  return plan;
}

}  // namespace lockstep::cpu
