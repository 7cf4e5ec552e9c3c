#include "lockstep/backend/backend.hpp"

#include <dnnl.h>
#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <numeric>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/device/host_stream.hpp"
#include "ports/cpu/arena/arena.hpp"
#include "ports/cpu/kernels/winograd/winograd.hpp"
#include "ports/cpu/library_set.hpp"
#include "ports/cpu/program.hpp"
#include "ports/cpu/units/conv/convolution.hpp"

namespace lockstep::cpu {

namespace {

std::string library_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

class CpuDevice final : public device::Device {
 public:
  std::string name() const override { return "cpu"; }
  device::Stream& compute() override { return compute_; }

 private:
  device::HostStream compute_;  // always empty: each call returns only when its work is finished
};

class CpuBackend final : public backend::Backend {
 public:
  explicit CpuBackend(const backend::CpuBackendSpec& spec)
      : team_(spec.thread_cpus), chunk_bytes_(spec.chunk_bytes) {
    require(dnnl_version()->cpu_runtime != DNNL_RUNTIME_SYCL,
            fmt::format("oneDNN {} was built for SYCL: its calls return before their results are "
                        "there; lockstep needs one that was built for OpenMP",
                        library_version()));
    static bool said = false;
    if (!library_refers() || std::exchange(said, true) || log::rank() != 0) return;
    log::warn(fmt::format(
        "oneDNN {} has only reference code for convolutions on this processor, which is slow: its "
        "cores are for tests and data; train on GPUs",
        library_version()));
  }
  std::string name() const override { return "cpu"; }
  std::string description() const override {
    return fmt::format("cpu: oneDNN {} ({}), {}, {} thread{}{}", library_version(),
                       library_instruction_set(), instruction_set(), team_.lanes(),
                       team_.lanes() == 1 ? "" : "s",
                       winograd_.empty() ? "" : std::string(backend::winograd_mark) + winograd_);
  }
  std::size_t threads() const override { return team_.lanes(); }
  device::Device& device() override { return device_; }
  backend::Vectors& vectors() override { return vectors_; }

  bool offers_winograd(backend::Precision precision) const override {
    using backend::Precision;
    constexpr std::size_t fewest_channels = 16;
    return (precision == Precision::fp32 || precision == Precision::bf16) &&
           winograd_kernels(storage_of(precision), fewest_channels) != nullptr;
  }
  bool plans() const override { return true; }
  bool shares_norms() const override { return true; }
  bool shares_images() const override { return true; }
  backend::Winograd measure_winograd(const nn::Network& network,
                                     const backend::ProgramSpec& spec) override {
    return cpu::measure_winograd(network, spec, team_, chunk_bytes_);
  }

  std::optional<std::size_t> measure_part_memory(
      const nn::Network& network, std::span<const backend::ProgramSpec> specs) override {
    return cpu::measure_memory(network, specs, team_, chunk_bytes_);
  }

  std::unique_ptr<backend::Parameters> make_part_parameters(const nn::Network& network,
                                                            backend::Precision precision,
                                                            backend::Keeps keeps) override {
    const Storage storage = storage_of(precision);
    kernels(storage);  // throws for bf16 when the processor lacks it
    return std::make_unique<CpuParameters>(network, storage, keeps, &team_);
  }

  std::unique_ptr<backend::Program> compile_part(const nn::Network& network,
                                                 const backend::ProgramSpec& spec,
                                                 backend::Parameters& parameters) override {
    const bool by_winograd = spec.winograd.mode != backend::Winograd::Mode::never;
    if (by_winograd && offers_winograd(spec.precision) && !spec.planned)
      winograd_ = to_string(spec.winograd);
    return std::make_unique<CpuProgram>(network, spec, static_cast<CpuParameters&>(parameters),
                                        team_, block_of(spec), chunk_bytes_);
  }

  void update(backend::Parameters& parameters, const optim::UpdateRule& rule,
              const optim::StepScalars& scalars, std::size_t first, std::size_t last) override {
    cpu::update(static_cast<CpuParameters&>(parameters), rule, scalars, {first, last}, team_);
  }
  void update_statistics(backend::Parameters& parameters, std::size_t micro_batches) override;
  std::vector<double> norms(const backend::Parameters& parameters, backend::Part part) override {
    return cpu::norms(static_cast<const CpuParameters&>(parameters), part, team_);
  }
  std::vector<double> gradient_squares(const backend::Parameters& parameters) override {
    return cpu::gradient_squares(static_cast<const CpuParameters&>(parameters), team_);
  }
  void clip_by_norm(backend::Parameters& parameters, float limit, double norm) override {
    cpu::clip_gradients(static_cast<CpuParameters&>(parameters), limit, norm, team_);
  }
  void clip_gradients(backend::Parameters& parameters, float limit) override {
    const std::vector<double> squares = gradient_squares(parameters);
    clip_by_norm(parameters, limit, std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.)));
  }
  void update_average(backend::Parameters& parameters, float share) override {
    cpu::update_average(static_cast<CpuParameters&>(parameters), share, team_);
  }
  void swap_average(backend::Parameters& parameters) override {
    cpu::swap_average(static_cast<CpuParameters&>(parameters), team_);
  }
  void release_idle_memory() override {
    block_.discard();
    frozen_block_.discard();
    for (SharedBlock& block : own_blocks_) block.discard();
  }

 private:
  SharedBlock& block_of(const backend::ProgramSpec& spec) {
    if (spec.planned) return no_block_;
    if (spec.own_memory && !spec.frozen) return own_blocks_.emplace_back();
    return spec.frozen ? frozen_block_ : block_;
  }

  CpuDevice device_;
  Team team_;
  CpuVectors vectors_{team_};
  SharedBlock block_, frozen_block_, no_block_;
  std::deque<SharedBlock> own_blocks_;  ///< of programs that share none; in place, for these
  std::size_t chunk_bytes_;
  std::string winograd_;  // the choice of the last program; empty: none
};

void CpuBackend::update_statistics(backend::Parameters& any, std::size_t micro_batches) {
  auto& parameters = static_cast<CpuParameters&>(any);
  parameters.weights_changed();
  const nn::ArenaLayout& layout = parameters.arena();
  for (std::size_t s = layout.learned_slices; s < layout.slices.size(); ++s) {
    const double share = parameters.statistics_momentum(s);
    const float kept = static_cast<float>(std::pow(1 - share, static_cast<double>(micro_batches)));
    float* running = parameters.at(backend::Part::weights, layout.slices[s].offset);
    const float* fresh = parameters.at(backend::Part::gradients, layout.slices[s].offset);
    for (std::size_t i = 0; i < layout.slices[s].size; ++i)
      running[i] = kept * running[i] + fresh[i];
  }
}

}  // namespace

}  // namespace lockstep::cpu

namespace lockstep::backend {

std::unique_ptr<backend::Backend> make_cpu_backend(const backend::CpuBackendSpec& spec) {
  return std::make_unique<cpu::CpuBackend>(spec);
}

}  // namespace lockstep::backend
