#include "lockstep/backend/backend.hpp"

#include <fmt/core.h>

#include "cuda/check.hpp"
#include "cuda/cost.hpp"
#include "cuda/fit.hpp"
#include "cuda/measure.hpp"
#include "cuda/program.hpp"
#include "cuda/range.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::cuda {

namespace {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int ordinal)
      : device_(ordinal), planner_(device_.compute()), shares_{device_, planner_, {}, {}} {}

  std::string name() const override { return "cuda"; }
  std::string description() const override {
    int driver = 0, runtime = 0;
    check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    return fmt::format("cuda: {}, cuDNN {}, CUDA {}.{}, driver {}.{}", device_.name(),
                       ConvPlanner::library_version(), runtime / 1000, runtime / 10 % 100,
                       driver / 1000, driver / 10 % 100);
  }
  Device& device() override { return device_; }

  void require_fit(const nn::Network& network, const ProgramSpec& spec) override {
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    cuda::require_fit(network, spec, planner_, free, total);
  }
  std::optional<Floor> floor(const nn::Network& network, const ProgramSpec& spec) override {
    Floor floor;
    floor.rates = measure_rates(device_, planner_);
    floor.steps = floors(network, plan_program(network, spec, planner_), floor.rates);
    return floor;
  }
  std::unique_ptr<Parameters> make_parameters(const nn::Network& network,
                                              Precision precision) override {
    return std::make_unique<CudaParameters>(network, precision, device_);
  }
  std::unique_ptr<Program> compile(const nn::Network& network, const ProgramSpec& spec,
                                   Parameters& parameters) override {
    return std::make_unique<CudaProgram>(network, spec, state(parameters), shares_);
  }
  void judge_gradients(Parameters& parameters) override {
    const Range range("search for overflows");
    state(parameters).judge();
  }
  void update(Parameters& parameters, const optim::UpdateRule& rule,
              const optim::StepScalars& scalars, std::size_t first, std::size_t last) override {
    const Range range("update");
    state(parameters).set_scalars(scalars);
    state(parameters).update(rule, first, last);
  }
  void update_statistics(Parameters& parameters, std::size_t micro_batches) override {
    const Range range("running statistics");
    state(parameters).update_statistics(micro_batches);
  }

 private:
  static CudaParameters& state(Parameters& parameters) {
    return static_cast<CudaParameters&>(parameters);
  }

  CudaDevice device_;
  ConvPlanner planner_;
  ProgramShares shares_;
};

}  // namespace

}  // namespace lockstep::cuda

namespace lockstep {

std::unique_ptr<Backend> make_cuda_backend(int device) {
  return std::make_unique<cuda::CudaBackend>(device);
}

}  // namespace lockstep
