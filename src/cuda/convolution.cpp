#include "cuda/convolution.hpp"

// With this name defined the graph API opens libcuda and libcudart itself when a device is used;
// otherwise the program would need libcuda.so.1 to start at all.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING 1
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // which would double the time to compile this file
#include <cudnn_frontend.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace cudnn_frontend {

// The graph API looks cuDNN's functions up through this handle: among those of the libraries that
// the program is linked with.
void* cudnn_dlhandle = RTLD_DEFAULT;

}  // namespace cudnn_frontend

namespace lockstep::cuda {

namespace {

namespace fe = cudnn_frontend;

void check_cudnn(cudnnStatus_t status, const char* call) {
  check(status == CUDNN_STATUS_SUCCESS, fmt::format("{}: {}", call, cudnnGetErrorString(status)));
}

constexpr std::size_t longest_reason = 400;  // characters: cuDNN lists every engine that it tried

void destroy(cudnnHandle_t handle) { cudnnDestroy(handle); }

enum Operand : std::int64_t { operand_x = 1, operand_w = 2, operand_y = 3 };

fe::DataType_t storage_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
    case Precision::tf32:
      return fe::DataType_t::FLOAT;
    case Precision::bf16:
      return fe::DataType_t::BFLOAT16;
    case Precision::fp16:
      return fe::DataType_t::HALF;
  }
  throw Error("a precision without a type");
}

/// NHWC in memory; cuDNN lists dimensions as N, C, H, W always.
fe::graph::Tensor_attributes tensor(Operand operand, fe::DataType_t type, std::size_t n,
                                    std::size_t c, std::size_t h, std::size_t w) {
  const auto dim = [](std::size_t count) { return static_cast<std::int64_t>(count); };
  fe::graph::Tensor_attributes attributes;
  attributes.set_uid(operand)
      .set_data_type(type)
      .set_dim({dim(n), dim(c), dim(h), dim(w)})
      .set_stride({dim(c * h * w), 1, dim(c * w), dim(c)});
  return attributes;
}

fe::graph::Tensor_attributes tensor_of(Operand operand, const ConvShape& s, fe::DataType_t type) {
  switch (operand) {
    case operand_x:
      return tensor(operand, type, s.batch, s.channels, s.height, s.width);
    case operand_w:
      return tensor(operand, type, s.outputs, s.channels, s.kernel, s.kernel);
    case operand_y:
      return tensor(operand, type, s.batch, s.outputs, s.out_height, s.out_width);
  }
  throw Error("an operand without a shape");
}

/// The same for all three passes.
template <class Attributes>
Attributes window(const ConvShape& s) {
  const auto pair = [](std::size_t n) { return std::vector<std::int64_t>(2, std::int64_t(n)); };
  Attributes attributes;
  attributes.set_compute_data_type(fe::DataType_t::FLOAT)
      .set_padding(pair(s.padding))
      .set_stride(pair(s.stride))
      .set_dilation(pair(1));
  return attributes;
}

void add_operation(fe::graph::Graph& graph, const ConvRequest& request) {
  const ConvShape& s = request.shape;
  const fe::DataType_t type = storage_of(request.precision);
  const auto input = [&](Operand operand) { return graph.tensor(tensor_of(operand, s, type)); };
  const auto output = [&](const std::shared_ptr<fe::graph::Tensor_attributes>& made,
                          Operand operand, fe::DataType_t kept_as) {
    const auto like = tensor_of(operand, s, kept_as);
    made->set_output(true).set_uid(operand).set_data_type(kept_as);
    made->set_dim(like.get_dim()).set_stride(like.get_stride());
  };
  switch (request.pass) {
    case Pass::forward:
      return output(graph.conv_fprop(input(operand_x), input(operand_w),
                                     window<fe::graph::Conv_fprop_attributes>(s)),
                    operand_y, type);
    case Pass::data_gradient:
      return output(graph.conv_dgrad(input(operand_y), input(operand_w),
                                     window<fe::graph::Conv_dgrad_attributes>(s)),
                    operand_x, type);
    case Pass::weight_gradient:
      return output(graph.conv_wgrad(input(operand_y), input(operand_x),
                                     window<fe::graph::Conv_wgrad_attributes>(s)),
                    operand_w, type);
  }
}

/// What engines must not do: sum in less than fp32, transform into numbers that lose digits, round
/// fp32 operands where fp32 was asked for, and, on request, depend on who comes first.
std::vector<fe::NumericalNote_t> unwanted(const ConvRequest& request) {
  using Note = fe::NumericalNote_t;
  std::vector<Note> notes{Note::REDUCED_PRECISION_REDUCTION, Note::WINOGRAD_TILE_6x6,
                          Note::WINOGRAD_TILE_13x13, Note::FFT};
  if (request.precision == Precision::fp32) {
    notes.push_back(Note::TENSOR_CORE);
    notes.push_back(Note::DOWN_CONVERT_INPUTS);
  }
  if (request.precision == Precision::tf32) notes.push_back(Note::DOWN_CONVERT_INPUTS);
  if (request.deterministic) notes.push_back(Note::NONDETERMINISTIC);
  return notes;
}

}  // namespace

struct ConvPlanner::Target {
  Owned<cudnnHandle_t, destroy> handle;                // none: only described
  std::shared_ptr<const fe::DeviceProperties> device;  // none: the handle's
};

struct ConvPlan::Impl {
  fe::graph::Graph graph;
  cudnnHandle_t handle = nullptr;
  std::size_t workspace = 0;
  std::string engine;
};

ConvPlan::ConvPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConvPlan::~ConvPlan() = default;
std::size_t ConvPlan::workspace() const { return impl_->workspace; }
const std::string& ConvPlan::engine() const { return impl_->engine; }

void ConvPlan::run(const ConvOperands& operands, void* workspace) const {
  check(impl_->handle != nullptr, "a plan for a described GPU cannot run");
  std::unordered_map<std::int64_t, void*> places{{operand_x, const_cast<void*>(operands.x)},
                                                 {operand_w, const_cast<void*>(operands.w)},
                                                 {operand_y, const_cast<void*>(operands.y)}};
  auto status = impl_->graph.execute(impl_->handle, places, workspace);
  check(status.is_good(), fmt::format("{}: {}", impl_->engine, status.get_message()));
}

ConvPlanner::ConvPlanner(const CudaStream& stream) : target_(std::make_unique<Target>()) {
  cudnnHandle_t handle = nullptr;
  check_cudnn(cudnnCreate(&handle), "cudnnCreate");
  target_->handle = decltype(target_->handle)(handle);
  check_cudnn(cudnnSetStream(handle, stream.get()), "cudnnSetStream");
}

ConvPlanner::ConvPlanner(const std::string& device_json) : target_(std::make_unique<Target>()) {
  auto device = std::make_shared<fe::DeviceProperties>();
  auto status = device->deserialize({device_json.begin(), device_json.end()});
  require(status.is_good(),
          fmt::format("cuDNN does not accept the GPU's description: {}", status.get_message()));
  target_->device = std::move(device);
}

ConvPlanner::~ConvPlanner() = default;

const ConvPlan& ConvPlanner::plan(const ConvRequest& request) {
  std::unique_ptr<ConvPlan>& kept = plans_[request];
  if (kept) return *kept;
  auto impl = std::make_unique<ConvPlan::Impl>();
  impl->handle = target_->handle.get();
  fe::graph::Graph& graph = impl->graph;
  const auto demand = [&](fe::error_t status, const char* stage) {
    if (status.is_good()) return;
    std::string reason = status.get_message().substr(0, longest_reason);
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    throw Error(fmt::format("cuDNN {} has no way to do the {} ({}: {})", library_version(),
                            describe(request), stage, reason));
  };
  graph.set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (target_->device) graph.set_device_properties(target_->device);
  add_operation(graph, request);
  demand(graph.validate(), "validation");
  demand(target_->device ? graph.build_operation_graph()
                         : graph.build_operation_graph(target_->handle.get()),
         "operation graph");
  demand(graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}), "heuristics");
  graph.deselect_numeric_notes(unwanted(request));
  // check_support() is left out: it asks for a device, and building asks the same.
  demand(graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE), "plans");
  impl->workspace = static_cast<std::size_t>(graph.get_workspace_size());
  demand(graph.get_plan_name(impl->engine), "name");
  kept = std::make_unique<ConvPlan>(std::move(impl));
  return *kept;
}

std::string ConvPlanner::library_version() {
  const std::size_t version = cudnnGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace lockstep::cuda
