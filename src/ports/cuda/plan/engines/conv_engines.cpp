#include "ports/cuda/plan/engines/conv_engines.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "ports/cuda/plan/engines/conv_graph.hpp"

namespace cudnn_frontend {

// The graph API looks up cuDNN's functions through this handle: in the libraries that the program
// is linked with.
void* cudnn_dlhandle = RTLD_DEFAULT;

}  // namespace cudnn_frontend

namespace lockstep::cuda {

namespace {

void check_cudnn(cudnnStatus_t status, const char* call) {
  check(status == CUDNN_STATUS_SUCCESS, fmt::format("{}: {}", call, cudnnGetErrorString(status)));
}

constexpr std::size_t longest_reason = 400;  // characters: cuDNN lists every engine that it tried

void destroy(cudnnHandle_t handle) { cudnnDestroy(handle); }

/// cuDNN opens and closes the runtime compiler for each engine that it judges: some 100 MB to map
/// and relocate, hundreds of times for a network. Kept open, planning takes a fifth of the
/// computing time. Without the library, cuDNN says what is missing.
void keep_compiler_open() {
  static const void* const compiler = dlopen(
      fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000).c_str(), RTLD_LAZY | RTLD_NODELETE);
  static_cast<void>(compiler);
}

/// Engines must not sum in less than fp32, transform into numbers that lose digits, or round fp32
/// operands where fp32 was asked for; on request they must not depend on the order of threads.
/// Winograd's transform with tiles of 4x4 (2x2 outputs of a 3x3 filter) stays: in fp32 its error is
/// 0.7 times that of the direct sum, over 64 to 512 channels; that of 6x6 is 4 times.
std::vector<fe::NumericalNote_t> unwanted(const ConvRequest& request) {
  using Note = fe::NumericalNote_t;
  std::vector<Note> notes{Note::REDUCED_PRECISION_REDUCTION, Note::WINOGRAD_TILE_6x6,
                          Note::WINOGRAD_TILE_13x13, Note::FFT};
  if (request.precision == backend::Precision::fp32) {
    notes.push_back(Note::TENSOR_CORE);
    notes.push_back(Note::DOWN_CONVERT_INPUTS);
  }
  if (request.precision == backend::Precision::tf32) notes.push_back(Note::DOWN_CONVERT_INPUTS);
  if (request.deterministic) notes.push_back(Note::NONDETERMINISTIC);
  return notes;
}

std::string cannot(const ConvRequest& request, const char* stage, std::string reason) {
  reason.resize(std::min(reason.size(), longest_reason));
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  return fmt::format("cuDNN {} cannot do the {} ({}: {})", ConvPlanner::library_version(),
                     describe(request), stage, reason);
}

void demand(fe::error_t status, const ConvRequest& request, const char* stage) {
  if (!status.is_good()) throw Error(cannot(request, stage, status.get_message()));
}

}  // namespace

struct ConvPlan::Impl {
  fe::graph::Graph graph;
  Pass pass = Pass::forward;
  ConvFusion fusion;
  std::size_t channels = 0;  // of x
  cudnnHandle_t handle = nullptr;
  std::size_t workspace = 0;
  std::string engine;
};

struct ConvPlanner::Target {
  Owned<cudnnHandle_t, destroy> handle;                // empty: the GPU is only described
  std::shared_ptr<const fe::DeviceProperties> device;  // empty: the handle's device
  std::unique_ptr<ConvPlan::Impl> offer(const ConvRequest& request) const;
};

ConvPlan::ConvPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConvPlan::~ConvPlan() = default;
std::size_t ConvPlan::workspace() const { return impl_->workspace; }
const std::string& ConvPlan::engine() const { return impl_->engine; }

void ConvPlan::run(const ConvOperands& operands, void* workspace) const {
  check(impl_->handle != nullptr, "a plan for a described GPU cannot run");
  auto places = places_of(operands, impl_->pass, impl_->fusion, impl_->channels);
  auto status = impl_->graph.execute(impl_->handle, places, workspace);
  if (status.is_bad()) [[unlikely]]
    throw Error(fmt::format("{}: {}", impl_->engine, status.get_message()));
}

/// A graph of the request with the engines that may be used, none of which is built yet.
std::unique_ptr<ConvPlan::Impl> ConvPlanner::Target::offer(const ConvRequest& request) const {
  auto impl = std::make_unique<ConvPlan::Impl>();
  impl->handle = handle.get();
  impl->pass = request.pass;
  impl->fusion = request.fusion;
  impl->channels = request.shape.channels;
  fe::graph::Graph& graph = impl->graph;
  graph.set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      // For an engine compiled at run time, "auto" would look for a separate CUDA runtime.
      .set_cuda_graph_retention(fe::CudaGraphRetention_t::NONE);
  if (device) graph.set_device_properties(device);
  ConvGraph(graph, request).add(request.pass);
  demand(graph.validate(), request, "validation");
  demand(device ? graph.build_operation_graph() : graph.build_operation_graph(handle.get()),
         request, "operation graph");
  demand(graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}), request,
         "heuristics");
  graph.deselect_numeric_notes(unwanted(request));
  return impl;
}

ConvPlanner::ConvPlanner(const CudaStream& stream) : target_(std::make_unique<Target>()) {
  keep_compiler_open();
  cudnnHandle_t handle = nullptr;
  check_cudnn(cudnnCreate(&handle), "cudnnCreate");
  target_->handle = decltype(target_->handle)(handle);
  check_cudnn(cudnnSetStream(handle, stream.get()), "cudnnSetStream");
}

ConvPlanner::ConvPlanner(const std::string& device_json) : target_(std::make_unique<Target>()) {
  keep_compiler_open();
  auto device = std::make_shared<fe::DeviceProperties>();
  auto status = device->deserialize({device_json.begin(), device_json.end()});
  require(status.is_good(),
          fmt::format("cuDNN does not accept the GPU's description: {}", status.get_message()));
  target_->device = std::move(device);
}

ConvPlanner::~ConvPlanner() = default;

const ConvPlan& ConvPlanner::plan(const ConvRequest& request) {
  if (const auto known = plans_.find(request); known != plans_.end()) return *known->second;
  try {
    return *plans_.emplace(request, make(request)).first->second;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {  // where cuDNN is older than what is asked for
    throw Error(cannot(request, "its library", failure.what()));
  }
}

std::unique_ptr<ConvPlan> ConvPlanner::make(const ConvRequest& request) const {
  const auto engine = request.measured && tuning_ ? find_fastest(request) : std::nullopt;
  std::unique_ptr<ConvPlan::Impl> impl = target_->offer(request);
  fe::graph::Graph& graph = impl->graph;
  // check_support() is left out: it needs a device, and building checks the same.
  demand(engine ? graph.build_plan_at_index(static_cast<std::int64_t>(*engine))
                : graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE),
         request, "plans");
  impl->workspace = static_cast<std::size_t>(graph.get_workspace_size());
  demand(graph.get_plan_name(impl->engine), request, "name");
  return std::make_unique<ConvPlan>(std::move(impl));
}

// On a graph that is thrown away: what it has built for the other engines takes memory.
std::optional<std::size_t> ConvPlanner::find_fastest(const ConvRequest& request) const {
  std::unique_ptr<ConvPlan::Impl> offered = target_->offer(request);
  ConvPlan::Impl& trial = *offered;
  const ConvPlan plan(std::move(offered));
  const auto number = [](std::size_t i) { return static_cast<std::int64_t>(i); };
  EngineList engines;
  engines.count = static_cast<std::size_t>(trial.graph.get_execution_plan_count());
  engines.name = [&](std::size_t i) {
    std::string name;
    demand(trial.graph.get_plan_name_at_index(number(i), name), request, "name");
    return name;
  };
  engines.builds = [&](std::size_t i) {
    try {
      return trial.graph.build_plan_at_index(number(i)).is_good();
    } catch (const std::exception&) {
      return false;
    }
  };
  engines.seconds = [&](std::size_t i) -> std::optional<double> {
    trial.workspace = static_cast<std::size_t>(trial.graph.get_workspace_size());
    trial.engine = engines.name(i);
    try {
      return tuning_->seconds(request, plan);
    } catch (const std::exception&) {  // the library's own ones, too
      return std::nullopt;
    }
  };
  const auto fastest = choose_engine(tuning_->cache, describe(request), engines);
  if (!fastest)
    log::warn(
        fmt::format("tune: no engine could be measured for the {}: cuDNN's own choice is "
                    "taken",
                    describe(request)));
  return fastest;
}

bool ConvPlanner::possible(const ConvRequest& request) {
  try {
    plan(request);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string ConvPlanner::library_version() {
  const std::size_t version = cudnnGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace lockstep::cuda
