#include "ports/cuda/program.hpp"

#include <cuda_runtime.h>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/backend/norm_span.hpp"
#include "lockstep/base/error.hpp"
#include "ports/cuda/runtime/range.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::cuda {
namespace {

constexpr std::size_t places_of_a_block = 256;

}  // namespace

StepPlaces::Place StepPlaces::take() {
  if (free_.empty()) {
    void *here = nullptr, *there = nullptr;
    check_cuda(cudaHostAlloc(&here, places_of_a_block * sizeof(StepWords), cudaHostAllocMapped),
               "cudaHostAlloc");
    blocks_.emplace_back(here);
    check_cuda(cudaHostGetDevicePointer(&there, here, 0), "cudaHostGetDevicePointer");
    for (std::size_t i = places_of_a_block; i-- > 0;)
      free_.push_back({static_cast<StepWords*>(here) + i, static_cast<StepWords*>(there) + i});
  }
  const Place place = free_.back();
  free_.pop_back();
  return place;
}

backend::Metrics metrics_of(const DeviceMetrics& sums) {
  return {.loss = sums.loss,
          .rows = sums.rows,
          .top1 = sums.top1,
          .top5 = sums.top5,
          .sums = {sums.sums[0], sums.sums[1], sums.sums[2]}};
}

backend::StepFigures figures_in(const std::vector<StepPlaces::Place>& places, bool has_scale) {
  backend::StepFigures figures;
  for (const StepPlaces::Place& place : places) figures.metrics += metrics_of(place.here->metrics);
  const DeviceScalars& state = places.back().here->scalars;
  if (has_scale) figures.loss_scale = state.loss_scale;
  figures.clipped_norm = state.clipped_norm;
  if (state.trust.largest != 0) figures.trust = state.trust;
  return figures;
}

namespace {

std::unique_ptr<Runner> make_runner(Context& context, std::size_t unit) {
  switch (context.plan.units[unit].unit.kind) {
    case UnitKind::image:
      return make_image_runner(context, unit);
    case UnitKind::conv:
      return make_conv_runner(context, unit);
    case UnitKind::norm:
      return make_norm_runner(context, unit);
    case UnitKind::max_pool:
      return make_max_pool_runner(context, unit);
    case UnitKind::mean_pool:
      return make_mean_pool_runner(context, unit);
    case UnitKind::subsample:
      return make_subsample_runner(context, unit);
    case UnitKind::head:
      return make_head_runner(context, unit);
    case UnitKind::receive:
      return make_receive_runner(context, unit);
    case UnitKind::send:
      return make_send_runner(context, unit);
  }
  throw Error("a unit without a runner");
}

/// What the largest batch norm's ranks tell each other, where they share its statistics.
std::size_t chunk_bytes(const ProgramPlan& plan, const backend::ProgramSpec& spec) {
  int channels = 1;
  for (const PlannedUnit& p : plan.units) channels = std::max(channels, p.shape.channels);
  const std::size_t ranks = spec.norm_span ? spec.norm_span->ranks() : 1;
  return ranks > 1 ? ranks * NormChunks::floats(channels) * sizeof(float) : sizeof(float);
}

/// Checks the memory for a further program of a backend. The first ones were checked as a whole;
/// only the memory for values grows with the batch.
void require_room(std::size_t needed, std::size_t batch) {
  if (needed == 0) return;
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const auto gigabytes = [](std::size_t bytes) { return static_cast<double>(bytes) / 1e9; };
  const double fraction = static_cast<double>(free) / static_cast<double>(needed);
  require(needed <= free,
          fmt::format("a micro-batch of {} rows needs {:.2f} GB of the GPU's memory in "
                      "addition to the weights, and {:.2f} of {:.2f} GB are free; {} rows would "
                      "fit: use a smaller batch or --accumulate",
                      batch, gigabytes(needed), gigabytes(free), gigabytes(total),
                      static_cast<std::size_t>(static_cast<double>(batch) * fraction)),
          Ending::out_of_memory);
}

}  // namespace

std::shared_ptr<DeviceBuffer> SharedMemory::of_size(std::size_t bytes, const char* what) {
  if (!memory_ || memory_->size() < bytes) memory_ = std::make_shared<DeviceBuffer>(bytes, what);
  return memory_;
}

CudaProgram::CudaProgram(const nn::Network& network, const backend::ProgramSpec& spec,
                         CudaParameters& parameters, const ProgramShares& shares)
    : network_(network),
      spec_(spec),
      parameters_(parameters),
      device_(shares.device),
      plan_(plan_program(network_, spec_, shares.planner, shares.block.size())),
      input_(network_, spec_, device_),
      metrics_(sizeof(DeviceMetrics), "the metrics"),
      chunks_(chunk_bytes(plan_, spec_), "batch norm's numbers of all ranks"),
      tickets_(std::max<std::size_t>(plan_.tickets, 1) * sizeof(unsigned), "the sums' tickets"),
      context_{network_, spec_, plan_, parameters_, device_, input_},
      scalars_(spec_.slots) {
  check(parameters.precision() == spec.precision, "the parameters were made for another precision");
  check(spec.weights_later == 0, "on a GPU, backward makes all gradients");
  require_room(shares.block.lacking(plan_.block) + shares.workspace.lacking(plan_.workspace),
               spec_.batch);
  block_ = shares.block.of_size(plan_.block, "the values of a step");
  workspace_ = shares.workspace.of_size(plan_.workspace, "the libraries' workspace");
  context_.block = block_->data();
  context_.workspace = workspace_->data();
  context_.metrics = metrics_.as<DeviceMetrics>();
  context_.tickets = tickets_.as<unsigned>();
  for (const DeviceBuffer* zeros : {&metrics_, &tickets_})
    check_cuda(cudaMemsetAsync(zeros->data(), 0, zeros->size(), context_.stream()),
               "cudaMemsetAsync");
  if (spec_.norm_span && spec_.norm_span->ranks() > 1) {
    const backend::NormSpan& span = *spec_.norm_span;
    context_.chunks = {chunks_.as<float>(), span.ranks(), span.rank(), spec_.batch};
  }
  for (std::size_t u = 0; u < plan_.units.size(); ++u) runners_.push_back(make_runner(context_, u));
  make_tapes();
}

/// The step with its range in a profile, and with the places that hold in its part of the tape.
backend::TapeStep CudaProgram::placed(backend::TapeStep step, bool after_forward) {
  auto run = [this, after_forward, name = step.name, inner = std::move(step.run)] {
    context_.after_forward = after_forward;
    const Range range(name);
    inner();
  };
  step.run = std::move(run);
  return step;
}

void CudaProgram::make_tapes() {
  const auto engine = [&](std::size_t u) {
    const PlannedUnit& p = plan_.units[u];
    return p.conv ? p.conv->forward->engine() : std::string();
  };
  for (std::size_t u = 0; u < runners_.size(); ++u) {
    Runner& runner = *runners_[u];
    const Unit& unit = plan_.units[u].unit;
    if (runs_forward(unit.kind))
      forward_.push_back(placed({.name = unit.name,
                                 .run = [&runner] { runner.forward(); },
                                 .final_slices = {},
                                 .engine = engine(u),
                                 .join = runner.join()},
                                false));
  }
  if (!spec_.training) return;
  for (const bool accumulate : {false, true}) {
    for (const auto& [unit, again] : plan_.after_forward) {
      Runner& runner = *runners_[unit];
      if (again)
        backward_[accumulate].push_back(placed({plan_.units[unit].unit.name + made_again_suffix,
                                                [&runner] { runner.again(); },
                                                {},
                                                engine(unit)},
                                               true));
      else
        for (backend::TapeStep& step : runner.backward(accumulate))
          backward_[accumulate].push_back(placed(std::move(step), true));
    }
  }
}

// The formulas read one set of scalars on the device: another slot's replaces it.
void CudaProgram::select(std::size_t slot) {
  check(slot < spec_.slots, fmt::format("a program of {} slots has no slot {}", spec_.slots, slot));
  context_.slot = slot;
  input_.select(slot);
  if (scalars_[slot]) parameters_.set_scalars(*scalars_[slot]);
}

void CudaProgram::set_scalars(const optim::StepScalars& scalars) {
  scalars_[context_.slot] = scalars;
  parameters_.set_scalars(scalars);
}

backend::Boundary CudaProgram::boundary(const BoundaryPlaces& places) const {
  if (places.values == nowhere) return {};
  return {{context_.at<std::byte>(places.values), places.bytes},
          {context_.at<std::byte>(places.gradients),
           places.gradients == nowhere ? 0 : places.readers * places.bytes}};
}

void CudaProgram::prefetch(const data::Batch& batch) {
  const Range range("copy of the next batch");
  input_.prefetch(batch);
}

void CudaProgram::load(const data::Batch& batch) {
  const Range range("load");
  input_.load(batch);
}

backend::Metrics CudaProgram::take_metrics() {
  DeviceMetrics sums{};
  check_cuda(cudaMemcpyAsync(&sums, metrics_.data(), sizeof(sums), cudaMemcpyDeviceToHost,
                             context_.stream()),
             "cudaMemcpyAsync of the metrics");
  check_cuda(cudaMemsetAsync(metrics_.data(), 0, sizeof(sums), context_.stream()),
             "cudaMemsetAsync");
  device_.compute().synchronize();
  return metrics_of(sums);
}

void CudaProgram::copy_logits(std::span<float> logits) const {
  check(plan_.units.back().unit.kind == UnitKind::head, "only a network's last stage makes logits");
  const Place place = plan_.units.back().head.logits;
  check(logits.size() == spec_.batch * network_.classes,
        "the buffer for the logits has the wrong size");
  check_cuda(cudaMemcpyAsync(logits.data(), context_.at(place), logits.size_bytes(),
                             cudaMemcpyDeviceToHost, context_.stream()),
             "cudaMemcpyAsync of the logits");
  device_.compute().synchronize();
}

void CudaProgram::poison() {
  const int every_byte = 0xff;  // a NaN in every storage
  for (const auto& memory : {block_, workspace_})
    check_cuda(cudaMemsetAsync(memory->data(), every_byte, memory->size(), context_.stream()),
               "cudaMemsetAsync");
}

}  // namespace lockstep::cuda
