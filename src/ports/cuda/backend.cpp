#include "lockstep/backend/backend.hpp"

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "ports/cuda/plan/cost.hpp"
#include "ports/cuda/plan/measure.hpp"
#include "ports/cuda/plan/memory_fit.hpp"
#include "ports/cuda/program.hpp"
#include "ports/cuda/runtime/check.hpp"
#include "ports/cuda/runtime/range.hpp"
#include "ports/cuda/step_words.hpp"
#include "ports/cuda/vectors.hpp"

namespace lockstep::cuda {

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
