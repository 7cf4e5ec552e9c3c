#include "ports/cuda/plan/conv_engines.hpp"

// With this name defined the graph API opens libcuda and libcudart itself when a device is used.
// Otherwise the program would need libcuda.so.1 just to start.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING 1
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // it would double the time to compile this file
#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace cudnn_frontend {

// The graph API looks up cuDNN's functions through this handle: in the libraries that the program
// is linked with.
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

/// cuDNN opens and closes the runtime compiler for each engine that it judges: some 100 MB to map
/// and relocate, hundreds of times for a network. Kept open, planning takes a fifth of the
/// computing time. Without the library, cuDNN says what is missing.
void keep_compiler_open() {
  static const void* const compiler = dlopen(
      fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000).c_str(), RTLD_LAZY | RTLD_NODELETE);
  static_cast<void>(compiler);
}

/// The graph's numbers for its tensors.
enum Operand : std::int64_t {
  operand_x = 1,
  operand_w,
  operand_y,
  operand_scale,
  operand_shift,
  operand_mean,
  operand_inverse_deviation,
  operand_gamma,
  operand_beta,
  operand_sum,
  operand_square_sum,
  operand_g,              // a fused data gradient reads x and writes this
  operand_gradient_sums,  // and gradient_sum_arrays - 1 more
};
Operand gradient_sum(std::size_t i) {
  return static_cast<Operand>(operand_gradient_sums + static_cast<std::int64_t>(i));
}

fe::DataType_t element_of(backend::Precision precision) {
  switch (precision) {
    case backend::Precision::fp32:
    case backend::Precision::tf32:
      return fe::DataType_t::FLOAT;
    case backend::Precision::bf16:
      return fe::DataType_t::BFLOAT16;
    case backend::Precision::fp16:
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

/// Writes one request into a graph.
class Operation {
 public:
  Operation(fe::graph::Graph& graph, const ConvRequest& request)
      : graph_(graph),
        fusion_(request.fusion),
        s_(request.shape),
        type_(element_of(request.precision)) {}

  void add(Pass pass) {
    switch (pass) {
      case Pass::forward:
        return forward();
      case Pass::data_gradient:
        return data_gradient();
      case Pass::weight_gradient:
        return output(graph_.conv_wgrad(input(operand_y), normalised_x(),
                                        window<fe::graph::Conv_wgrad_attributes>()),
                      shape_of(operand_w));
    }
  }

 private:
  using Attributes = fe::graph::Tensor_attributes;
  using Tensor = std::shared_ptr<Attributes>;

  void forward() {
    const Tensor y = graph_.conv_fprop(normalised_x(), input(operand_w),
                                       window<fe::graph::Conv_fprop_attributes>());
    output(y, shape_of(operand_y));
    if (!fusion_.sums) return;
    fe::graph::Genstats_attributes statistics;
    statistics.set_compute_data_type(fe::DataType_t::FLOAT);
    const auto [sum, square_sum] = graph_.genstats(y, statistics);
    output(sum, channels(operand_sum, s_.outputs, fe::DataType_t::FLOAT));
    output(square_sum, channels(operand_square_sum, s_.outputs, fe::DataType_t::FLOAT));
  }

  void data_gradient() {
    const Tensor dx = graph_.conv_dgrad(input(operand_y), input(operand_w),
                                        window<fe::graph::Conv_dgrad_attributes>());
    if (!fusion_.normalised) return output(dx, shape_of(operand_x));
    dx->set_dim(shape_of(operand_x).get_dim()).set_stride(shape_of(operand_x).get_stride());
    const auto of_norm = [&](Operand operand) {
      return graph_.tensor(channels(operand, s_.channels, fe::DataType_t::FLOAT));
    };
    const Tensor x = input(operand_x), mean = of_norm(operand_mean),
                 inverse = of_norm(operand_inverse_deviation), gamma = of_norm(operand_gamma);
    using Mode = fe::PointwiseMode_t;
    const Tensor centred = pointwise(Mode::SUB, x, mean);
    const Tensor normalised = pointwise(Mode::MUL, centred, inverse);
    const Tensor scaled = pointwise(Mode::MUL, normalised, gamma);
    const Tensor before_relu = pointwise(Mode::ADD, scaled, of_norm(operand_beta));
    const Tensor g = pointwise(Mode::RELU_BWD, dx, before_relu);
    Attributes kept = shape_of(operand_x);
    output(g, kept.set_uid(operand_g));
    const auto sums = graph_.dbn_weight(g, x, mean, inverse, gamma, {});
    for (std::size_t i = 0; i < sums.size(); ++i)
      output(sums[i], channels(gradient_sum(i), s_.channels, fe::DataType_t::FLOAT));
  }

  /// x, or its value after the batch norm and the ReLU.
  Tensor normalised_x() {
    Tensor x = input(operand_x);
    if (!fusion_.normalised) return x;
    using Mode = fe::PointwiseMode_t;
    const auto of_norm = [&](Operand operand) {
      return graph_.tensor(channels(operand, s_.channels, type_));
    };
    const Tensor scaled = pointwise(Mode::MUL, x, of_norm(operand_scale));
    const Tensor shifted = pointwise(Mode::ADD, scaled, of_norm(operand_shift));
    return graph_.pointwise(shifted, mode(Mode::RELU_FWD));
  }

  static fe::graph::Pointwise_attributes mode(fe::PointwiseMode_t which) {
    fe::graph::Pointwise_attributes attributes;
    attributes.set_mode(which).set_compute_data_type(fe::DataType_t::FLOAT);
    return attributes;
  }
  Tensor pointwise(fe::PointwiseMode_t which, const Tensor& a, const Tensor& b) {
    return graph_.pointwise(a, b, mode(which));
  }

  Attributes shape_of(Operand operand) const {
    if (operand == operand_w)
      return tensor(operand, type_, s_.outputs, s_.channels, s_.kernel, s_.kernel);
    return operand == operand_x
               ? tensor(operand, type_, s_.batch, s_.channels, s_.height, s_.width)
               : tensor(operand, type_, s_.batch, s_.outputs, s_.out_height, s_.out_width);
  }
  static Attributes channels(Operand operand, std::size_t count, fe::DataType_t type) {
    return tensor(operand, type, 1, count, 1, 1);
  }

  Tensor input(Operand operand) { return graph_.tensor(shape_of(operand)); }
  static void output(const Tensor& made, const Attributes& like) {
    made->set_output(true).set_uid(like.get_uid()).set_data_type(like.get_data_type());
    made->set_dim(like.get_dim()).set_stride(like.get_stride());
  }

  /// The same for all three passes.
  template <class Window>
  Window window() const {
    const auto pair = [](std::size_t n) { return std::vector<std::int64_t>(2, std::int64_t(n)); };
    Window attributes;
    attributes.set_compute_data_type(fe::DataType_t::FLOAT)
        .set_padding(pair(s_.padding))
        .set_stride(pair(s_.stride))
        .set_dilation(pair(1));
    return attributes;
  }

  fe::graph::Graph& graph_;
  const ConvFusion fusion_;
  const ConvShape& s_;
  const fe::DataType_t type_;
};

using Places = std::unordered_map<std::int64_t, void*>;

/// The memory of each tensor of a plan's graph.
Places places_of(const ConvOperands& operands, Pass pass, const ConvFusion& fusion,
                 std::size_t channels) {
  const NormOperands& norm = operands.norm;
  Places places;
  const auto put = [&](Operand operand, const void* at) {
    places[operand] = const_cast<void*>(at);
  };
  put(operand_x, operands.x);
  put(operand_w, operands.w);
  put(operand_y, operands.y);
  if (pass == Pass::forward && fusion.sums) {
    put(operand_sum, norm.sum);
    put(operand_square_sum, norm.square_sum);
  }
  if (!fusion.normalised) return places;
  if (pass != Pass::data_gradient) {
    put(operand_scale, norm.scale);
    put(operand_shift, norm.shift);
    return places;
  }
  put(operand_g, norm.g);
  put(operand_mean, norm.mean);
  put(operand_inverse_deviation, norm.inverse_deviation);
  put(operand_gamma, norm.gamma);
  put(operand_beta, norm.beta);
  for (std::size_t i = 0; i < gradient_sum_arrays; ++i)
    put(gradient_sum(i), norm.gradient_sums + i * channels);
  return places;
}

/// Engines must not sum in less than fp32, transform into numbers that lose digits, or round fp32
/// operands where fp32 was asked for; on request they must not depend on the order of threads.
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

}  // namespace

struct ConvPlanner::Target {
  Owned<cudnnHandle_t, destroy> handle;                // empty: the GPU is only described
  std::shared_ptr<const fe::DeviceProperties> device;  // empty: the handle's device
};

struct ConvPlan::Impl {
  fe::graph::Graph graph;
  Pass pass = Pass::forward;
  ConvFusion fusion;
  std::size_t channels = 0;  // of x
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
  auto places = places_of(operands, impl_->pass, impl_->fusion, impl_->channels);
  auto status = impl_->graph.execute(impl_->handle, places, workspace);
  check(status.is_good(), fmt::format("{}: {}", impl_->engine, status.get_message()));
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
  auto impl = std::make_unique<ConvPlan::Impl>();
  impl->handle = target_->handle.get();
  impl->pass = request.pass;
  impl->fusion = request.fusion;
  impl->channels = request.shape.channels;
  fe::graph::Graph& graph = impl->graph;
  const auto demand = [&](fe::error_t status, const char* stage) {
    if (status.is_good()) return;
    std::string reason = status.get_message().substr(0, longest_reason);
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    throw Error(fmt::format("cuDNN {} cannot do the {} ({}: {})", library_version(),
                            describe(request), stage, reason));
  };
  graph.set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      // For an engine compiled at run time, "auto" would look for a separate CUDA runtime.
      .set_cuda_graph_retention(fe::CudaGraphRetention_t::NONE);
  if (target_->device) graph.set_device_properties(target_->device);
  Operation(graph, request).add(request.pass);
  demand(graph.validate(), "validation");
  demand(target_->device ? graph.build_operation_graph()
                         : graph.build_operation_graph(target_->handle.get()),
         "operation graph");
  demand(graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}), "heuristics");
  graph.deselect_numeric_notes(unwanted(request));
  // check_support() is left out: it needs a device, and building checks the same.
  demand(graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE), "plans");
  impl->workspace = static_cast<std::size_t>(graph.get_workspace_size());
  demand(graph.get_plan_name(impl->engine), "name");
  return *plans_.emplace(request, std::make_unique<ConvPlan>(std::move(impl))).first->second;
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
