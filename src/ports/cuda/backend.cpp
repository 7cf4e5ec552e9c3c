#include <fmt/format.h>

#include <memory>

#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/vectors.hpp"
#include "lockstep/base/error.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/plan/plan.hpp"
#include "ports/cuda/program.hpp"
#include "ports/cuda/runtime/range.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::cuda {
namespace {

/// One thread for each value, one block of threads for each block of values: all work is as fast
/// as the device's memory.
class CudaVectors final : public backend::Vectors {
 public:
  explicit CudaVectors(CudaDevice& device) : device_(device) {}
  backend::DeviceMemory allocate(std::size_t bytes, const std::string& what) override;
  void read(const void* from, std::span<std::byte> to) override;
  void write(std::span<const std::byte> from, void* to) override;
  void cast(const backend::Vector& from, const backend::Vector& to) override;
  void add(float factor, const backend::Vector& from, const backend::Vector& to) override;
  void scale(float factor, const backend::Vector& values) override;
  void largest(const backend::Vector& values, float* found) override;
  void multiply(const backend::Matrix& matrix, const backend::Thin& columns,
                const backend::Thin& product) override;
  void multiply_transposed(const backend::Matrix& matrix, const backend::Thin& rows,
                           const backend::Thin& product) override;
  void add_product(float keep, float factor, const backend::Thin& rows,
                   const backend::Thin& columns, const backend::Matrix& to) override;
  void orthogonalise(const backend::Thin& vectors) override;

 private:
  CudaDevice& device_;
};

backend::DeviceMemory CudaVectors::allocate(std::size_t bytes, const std::string& what) {
  auto memory = std::make_shared<DeviceBuffer>(bytes, what.c_str());
  if (bytes > 0)
    check_cuda(cudaMemsetAsync(memory->data(), 0, bytes, device_.compute().get()),
               "cudaMemsetAsync");
  std::byte* data = memory->data();
  return {data, [memory](std::byte*) mutable { memory.reset(); }};
}

void CudaVectors::read(const void* from, std::span<std::byte> to) {
  if (to.empty()) return;
  check_cuda(
      cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, device_.compute().get()),
      "cudaMemcpyAsync");
  device_.compute().synchronize();
}

void CudaVectors::write(std::span<const std::byte> from, void* to) {
  if (from.empty()) return;
  check_cuda(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice,
                             device_.compute().get()),
             "cudaMemcpyAsync");
  device_.compute().synchronize();
}

void CudaVectors::cast(const backend::Vector& from, const backend::Vector& to) {
  check_vectors(from, to, "cast");
  if (from.count > 0) cast_vector(from, to, device_.compute().get());
}

void CudaVectors::add(float factor, const backend::Vector& from, const backend::Vector& to) {
  check_vectors(from, to, "add");
  if (from.count > 0) add_vector(factor, from, to, device_.compute().get());
}

void CudaVectors::scale(float factor, const backend::Vector& values) {
  check_vector(values, "scale");
  if (values.count > 0) scale_vector(factor, values, device_.compute().get());
}

void CudaVectors::largest(const backend::Vector& values, float* found) {
  check_vector(values, "largest");
  largest_value(values, found, device_.compute().get());
}

void CudaVectors::multiply(const backend::Matrix& matrix, const backend::Thin& columns,
                           const backend::Thin& product) {
  check_product(matrix, product, columns, "multiply");
  cuda::multiply(matrix, columns, product, device_.compute().get());
}

void CudaVectors::multiply_transposed(const backend::Matrix& matrix, const backend::Thin& rows,
                                      const backend::Thin& product) {
  check_product(matrix, rows, product, "multiply_transposed");
  cuda::multiply_transposed(matrix, rows, product, device_.compute().get());
}

void CudaVectors::add_product(float keep, float factor, const backend::Thin& rows,
                              const backend::Thin& columns, const backend::Matrix& to) {
  check_product(to, rows, columns, "add_product");
  cuda::add_product(keep, factor, rows, columns, to, device_.compute().get());
}

void CudaVectors::orthogonalise(const backend::Thin& vectors) {
  check_thin(vectors, "orthogonalise");
  cuda::orthogonalise(vectors, device_.compute().get());
}

}  // namespace

namespace {

class CudaBackend final : public backend::Backend {
 public:
  explicit CudaBackend(int ordinal) : device_(ordinal), planner_(device_.compute()) {}

  std::string name() const override { return "cuda"; }
  std::string description() const override {
    int driver = 0, runtime = 0;
    check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    return fmt::format("cuda: {}, cuDNN {}, CUDA {}.{}, driver {}.{}", device_.name(),
                       ConvPlanner::library_version(), runtime / 1000, runtime / 10 % 100,
                       driver / 1000, driver / 10 % 100);
  }
  device::Device& device() override { return device_; }
  backend::Vectors& vectors() override { return vectors_; }
  bool shares_norms() const override { return true; }

  void require_part_fit(const nn::Network& network, const backend::ProgramSpec& spec) override {
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    measure_plans(network, spec);
    cuda::require_fit(network, spec, planner_, free, total);
  }
  std::optional<backend::Floor> floor_of_part(const nn::Network& network,
                                              const backend::ProgramSpec& spec) override {
    backend::Floor floor;
    floor.rates = measure_rates(device_, planner_);
    measure_plans(network, spec);
    floor.steps = floors(network, plan_program(network, spec, planner_), floor.rates);
    return floor;
  }
  std::unique_ptr<backend::Parameters> make_part_parameters(const nn::Network& network,
                                                            backend::Precision precision,
                                                            backend::Keeps keeps) override {
    return std::make_unique<CudaParameters>(network, precision, device_, keeps);
  }
  std::unique_ptr<backend::Program> compile_part(const nn::Network& network,
                                                 const backend::ProgramSpec& spec,
                                                 backend::Parameters& parameters) override {
    measure_plans(network, spec);
    const ProgramShares shares{device_, planner_, spec.frozen ? frozen_block_ : block_, workspace_};
    return std::make_unique<CudaProgram>(network, spec, state(parameters), shares);
  }
  backend::ReadFigures put_aside(std::vector<backend::Program*> ran,
                                 const backend::Parameters& parameters) override {
    const Range range("figures of the step");
    const auto& of = static_cast<const CudaParameters&>(parameters);
    std::vector<StepPlaces::Place> places;
    const auto put = [&](DeviceMetrics* metrics) {
      places.push_back(places_.take());
      cuda::put_aside(metrics, of.scalars(), places.back().there, device_.compute().get());
    };
    for (backend::Program* program : ran)
      put(static_cast<CudaProgram&>(program->trained()).metrics());
    if (ran.empty()) put(nullptr);
    return [this, places, has_scale = backend::has_loss_scale(of.precision())] {
      const backend::StepFigures figures = figures_in(places, has_scale);
      for (const StepPlaces::Place& place : places) places_.give_back(place);
      return figures;
    };
  }
  void judge_gradients(backend::Parameters& parameters, const float* largest) override {
    const Range range("search for overflows");
    state(parameters).judge(largest);
  }
  void update(backend::Parameters& parameters, const optim::UpdateRule& rule,
              const optim::StepScalars& scalars, std::size_t first, std::size_t last) override {
    const Range range("update");
    state(parameters).set_scalars(scalars);
    state(parameters).update(rule, first, last);
  }
  void update_statistics(backend::Parameters& parameters, std::size_t micro_batches) override {
    const Range range("running statistics");
    state(parameters).update_statistics(micro_batches);
  }
  std::vector<double> norms(const backend::Parameters& parameters, backend::Part part) override {
    return static_cast<const CudaParameters&>(parameters).norms(part);
  }
  void clip_gradients(backend::Parameters& parameters, float limit) override {
    const Range range("clip gradients");
    state(parameters).clip(limit);
  }
  void update_average(backend::Parameters& parameters, float share) override {
    const Range range("average");
    state(parameters).update_average(share);
  }
  void swap_average(backend::Parameters& parameters) override { state(parameters).swap_average(); }

 private:
  /// Where the spec asks for it, measures the plans that the program will take, and writes down
  /// what was chosen. The memory for that is free again before anything else is allocated.
  void measure_plans(const nn::Network& network, const backend::ProgramSpec& spec) {
    if (spec.plan_cache.empty()) return;
    if (!cache_ || cache_->file() != spec.plan_cache)
      cache_.emplace(spec.plan_cache, description(), spec.writes_plan_cache);
    PlanTimer timer(device_);
    planner_.tune_by(ConvTuning{
        *cache_,
        [&](const ConvRequest& request, const ConvPlan& plan) {
          return timer.seconds(request, plan);
        },
        [&](NormPart part, std::size_t rows, std::size_t channels, auto precision) {
          return timer.seconds(part, {rows, static_cast<int>(channels)}, storage_of(precision));
        }});
    plan_program(network, spec, planner_);
    planner_.tune_by(std::nullopt);
    cache_->save();
  }
  static CudaParameters& state(backend::Parameters& parameters) {
    return static_cast<CudaParameters&>(parameters);
  }

  CudaDevice device_;
  CudaVectors vectors_{device_};
  ConvPlanner planner_;
  std::optional<PlanCache> cache_;
  StepPlaces places_;
  SharedMemory block_, frozen_block_, workspace_;
};

}  // namespace

}  // namespace lockstep::cuda

namespace lockstep::backend {

std::unique_ptr<backend::Backend> make_cuda_backend(int device) {
  return std::make_unique<cuda::CudaBackend>(device);
}

}  // namespace lockstep::backend
