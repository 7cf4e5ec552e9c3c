#include <cmath>

#include "lockstep/base/error.hpp"
#include "ports/cuda/parameters.hpp"
#include "ports/cuda/runtime/check.hpp"

// Norms, clipping and the average.
namespace lockstep::cuda {

void CudaParameters::add_squares(backend::Part part, std::size_t slices) const {
  check(part != backend::Part::average || has_average(), "no average is kept");
  const cudaStream_t stream = device_.compute().get();
  const std::size_t all = layout_.slices.size();
  if (first_chunks_.data() == nullptr) {
    std::vector<std::size_t> first;
    for (std::size_t s = 0; s <= all; ++s) first.push_back(chunks_of(s, s).first);
    first_chunks_ = DeviceBuffer(first.size() * sizeof(std::size_t), "the norms' chunks");
    chunk_sums_ = DeviceBuffer(chunks_.size() * sizeof(double), "the norms' sums");
    slice_sums_ = DeviceBuffer(all * sizeof(double), "the norms");
    // From pageable memory: the host waits until the values have been copied.
    check_cuda(cudaMemcpyAsync(first_chunks_.data(), first.data(), first_chunks_.size(),
                               cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync");
  }
  NormArgs args{};
  args.chunks = device_chunks_.as<Chunk>();
  args.first_chunks = first_chunks_.as<std::size_t>();
  args.slices = slices;
  args.chunk_count = chunks_of(slices, slices).first;
  args.values = at(part, 0);
  args.chunk_sums = chunk_sums_.as<double>();
  args.slice_sums = slice_sums_.as<double>();
  slice_squares(args, stream);
}

std::vector<double> CudaParameters::norms(backend::Part part) const {
  std::vector<double> found(layout_.slices.size());
  add_squares(part, found.size());
  read(slice_sums_.data(), found.data(), found.size() * sizeof(double));
  for (double& norm : found) norm = std::sqrt(norm);
  return found;
}

void CudaParameters::clip(float limit) {
  add_squares(backend::Part::gradients, layout_.learned_slices);
  cuda::clip(slice_sums_.as<double>(), layout_.learned_slices, limit,
             backend::has_loss_scale(precision_), scalars(), device_.compute().get());
}

void CudaParameters::start_average() {
  const std::size_t bytes = layout_.size * sizeof(float);
  DeviceBuffer& average = parts_[average_part];
  if (!has_average()) average = DeviceBuffer(bytes, "the weights' average");
  check_cuda(cudaMemcpyAsync(average.data(), at(backend::Part::weights, 0), bytes,
                             cudaMemcpyDeviceToDevice, device_.compute().get()),
             "cudaMemcpyAsync");
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
  update_averages(average_args(), share, device_.compute().get());
}

void CudaParameters::swap_average() { swap_averages(average_args(), device_.compute().get()); }

}  // namespace lockstep::cuda
