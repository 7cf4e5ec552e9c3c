#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"
#include "ports/cuda/kernels/muon/muon.hpp"
#include "ports/cuda/parameters.hpp"
#include "ports/cuda/runtime/check.hpp"

// Update rules, norms, clipping and the average.
namespace lockstep::cuda {

const double* CudaParameters::add_squares(backend::Part part, std::size_t first,
                                          std::size_t last) const {
  check(part != backend::Part::average || has_average(), "no average is kept");
  const cudaStream_t stream = device_.compute().get();
  const std::size_t all = layout_.slices.size();
  if (first_chunks_.data() == nullptr) {
    std::vector<std::size_t> begins;
    for (std::size_t s = 0; s <= all; ++s) begins.push_back(chunks_of(s, s).first);
    first_chunks_ = DeviceBuffer(begins.size() * sizeof(std::size_t), "the norms' chunks");
    chunk_sums_ = DeviceBuffer(chunks_.size() * sizeof(double), "the norms' sums");
    slice_sums_ = DeviceBuffer(2 * all * sizeof(double), "the norms");
    // From pageable memory: the host waits until the values have been copied.
    check_cuda(cudaMemcpyAsync(first_chunks_.data(), begins.data(), first_chunks_.size(),
                               cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync");
  }
  NormArgs args{};
  args.chunks = device_chunks_.as<Chunk>();
  args.first_chunks = first_chunks_.as<std::size_t>();
  args.first_slice = first;
  args.slices = last - first;
  const auto [begin, end] = chunks_of(first, last);
  args.first_chunk = begin;
  args.chunk_count = end - begin;
  args.values = at(part, 0);
  args.chunk_sums = chunk_sums_.as<double>();
  args.slice_sums = slice_sums_.as<double>() + (part == backend::Part::weights ? 0 : all);
  slice_squares(args, stream);
  return args.slice_sums;
}

void CudaParameters::apply(const optim::Sgd&, const optim::UpdateRule&, const UpdateArgs& args,
                           std::pair<std::size_t, std::size_t>) {
  sgd_update(args, device_.compute().get());
}

void CudaParameters::apply(const optim::Lars& lars, const optim::UpdateRule& rule,
                           const UpdateArgs& args, std::pair<std::size_t, std::size_t> slices) {
  LarsArgs more{};
  more.coefficient = lars.coefficient;
  more.epsilon = lars.epsilon;
  more.form = lars.form;
  more.trust = trust_args(rule);
  more.trust.weight_sums = add_squares(backend::Part::weights, slices.first, slices.second);
  more.trust.step_sums = add_squares(backend::Part::gradients, slices.first, slices.second);
  lars_update(args, more, device_.compute().get());
  end_trust(more.trust, slices.second);
}

void CudaParameters::apply(const optim::Lamb& lamb, const optim::UpdateRule& rule,
                           const UpdateArgs& args, std::pair<std::size_t, std::size_t> slices) {
  check(has_second_moments(), "LAMB needs second moments");
  LambArgs more{};
  more.beta2 = lamb.beta2;
  more.epsilon = lamb.epsilon;
  more.steps = at(backend::Part::gradients, 0);
  more.second_moments = at(backend::Part::second_moments, 0);
  more.trust = trust_args(rule);
  const cudaStream_t stream = device_.compute().get();
  lamb_moments(args, more, stream);
  more.trust.weight_sums = add_squares(backend::Part::weights, slices.first, slices.second);
  more.trust.step_sums = add_squares(backend::Part::gradients, slices.first, slices.second);
  lamb_update(args, more, stream);
  end_trust(more.trust, slices.second);
}

TrustArgs CudaParameters::trust_args(const optim::UpdateRule& rule) {
  if (trust_.data() == nullptr)
    trust_ = DeviceBuffer(layout_.learned_slices * sizeof(float), "the trust ratios");
  return {.adaptive = table(adaptive_, rule.adaptive),
          .weight_sums = nullptr,
          .step_sums = nullptr,
          .ratios = trust_.as<float>()};
}

void CudaParameters::end_trust(const TrustArgs& trust, std::size_t last_slice) {
  if (last_slice == layout_.learned_slices)
    gather_trust(trust.ratios, last_slice, scalars(), device_.compute().get());
}

std::optional<optim::TrustRatios> CudaParameters::trust_ratios() const {
  const optim::TrustRatios found = read_scalars().trust;
  return found.largest != 0 ? std::optional(found) : std::nullopt;
}

std::vector<double> CudaParameters::norms(backend::Part part) const {
  std::vector<double> found(layout_.slices.size());
  read(add_squares(part, 0, found.size()), found.data(), found.size() * sizeof(double));
  for (double& norm : found) norm = std::sqrt(norm);
  return found;
}

void CudaParameters::clip(float limit) {
  const double* sums = add_squares(backend::Part::gradients, 0, layout_.learned_slices);
  cuda::clip(sums, layout_.learned_slices, limit, backend::has_loss_scale(precision_), scalars(),
             device_.compute().get());
}

void CudaParameters::start_average() {
  const std::size_t bytes = layout_.size * sizeof(float);
  DeviceBuffer& average = parts_[average_part];
  if (!has_average()) average = DeviceBuffer(bytes, "the weights' average");
  check_cuda(cudaMemcpyAsync(average.data(), at(backend::Part::weights, 0), bytes,
                             cudaMemcpyDeviceToDevice, device_.compute().get()),
             "cudaMemcpyAsync");
}

void CudaParameters::start_second_moments() {
  const std::size_t bytes = layout_.size * sizeof(float);
  DeviceBuffer& moments = parts_[moments_part];
  if (!has_second_moments()) moments = DeviceBuffer(bytes, "the second moments");
  check_cuda(cudaMemsetAsync(moments.data(), 0, bytes, device_.compute().get()), "cudaMemsetAsync");
}

AverageArgs CudaParameters::average_args() const {
  check(has_average(), "no average is kept");
  AverageArgs args{};
  args.count = layout_.size;
  args.weights = at(backend::Part::weights, 0);
  args.averages = at(backend::Part::average, 0);
  args.copies = storage_ == Storage::fp32 ? nullptr : copies_.data();
  args.storage = storage_;
  args.scalars = scalars();
  return args;
}

void CudaParameters::update_average(float share) {
  optim::StepScalars step = newest_step_.value_or(optim::StepScalars{});
  step.average_share = share;
  set_scalars(step);
  update_averages(average_args(), device_.compute().get());
}

void CudaParameters::swap_average() { swap_averages(average_args(), device_.compute().get()); }

void CudaParameters::apply(const optim::Muon& muon, const optim::UpdateRule& rule,
                           const UpdateArgs& args, std::pair<std::size_t, std::size_t> slices) {
  const cudaStream_t stream = device_.compute().get();
  muon_moments(args,
               {.adaptive = table(adaptive_, rule.adaptive),
                .rest_momentum = muon.rest_momentum,
                .directions = at(backend::Part::gradients, 0)},
               stream);
  const double* weight_sums = add_squares(backend::Part::weights, slices.first, slices.second);
  const double* direction_sums = add_squares(backend::Part::gradients, slices.first, slices.second);
  for (std::size_t s = slices.first; s < slices.second; ++s) {
    if (rule.adaptive.at(s) == 0) continue;
    const FilterShape& shape = filters_.at(s).value();
    muon_filter(args,
                {.outputs = shape.outputs,
                 .columns = shape.physical_count() / shape.outputs,
                 .slice = s,
                 .offset = layout_.slices[s].offset,
                 .weight_sums = weight_sums,
                 .direction_sums = direction_sums,
                 .directions = at(backend::Part::gradients, 0),
                 .room = muon_memory()},
                muon.iterations, stream);
  }
}

/// For any filter, so that a recorded step finds it in the same place.
float* CudaParameters::muon_memory() {
  if (muon_room_.data() != nullptr) return muon_room_.as<float>();
  std::size_t most = 0;
  for (const auto& shape : filters_)
    if (shape)
      most = std::max(most,
                      optim::muon_room(shape->outputs, shape->physical_count() / shape->outputs));
  muon_room_ = DeviceBuffer(most * sizeof(float), "Muon's products");
  return muon_room_.as<float>();
}

}  // namespace lockstep::cuda
