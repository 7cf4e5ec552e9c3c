#include "ports/cpu/units/pool_runner.hpp"

#include <algorithm>
#include <onednn_calls.hpp>

#include "lockstep/base/error.hpp"

namespace lockstep::cpu {

namespace {

using dnnl::memory;

}  // namespace

memory::desc nhwc(const nn::Shape& shape, std::size_t rows, Storage storage) {
  const auto type = storage == Storage::fp32 ? memory::data_type::f32 : memory::data_type::bf16;
  const auto dim = [](std::size_t n) { return static_cast<memory::dim>(n); };
  return {{dim(rows), dim(shape.channels), dim(shape.height), dim(shape.width)},
          type,
          memory::format_tag::nhwc};
}

PointRunner* PoolRunner::inline_input() const {
  return c.units[*unit.input].in_region ? nullptr
                                        : static_cast<PointRunner*>(c.runners[*unit.input]);
}

void PoolRunner::plan() {
  const nn::Node& node = c.network.nodes[unit.node];
  out_bytes_ = node.shape.count() * bytes_of(c.storage);
  in_bytes_ = c.network.nodes[node.inputs[0]].shape.count() * bytes_of(c.storage);
  for (const std::size_t rows : chunk_sizes(c.regions[unit.level]))
    prepared_.emplace(rows, prepare(rows));
  if (!c.spec.training) return;
  c.value_places[index] = {false, c.value_buffer(out_bytes_ * c.spec.batch, index)};
  workspace_ = c.value_buffer(workspace_bytes_ * c.spec.batch, index);
  sum_ = c.scratch(unit.level, out_bytes_);
  if (!inline_input()) dinput_ = c.scratch(unit.level, in_bytes_);
}

PoolRunner::Prepared PoolRunner::prepare(std::size_t rows) {
  const nn::Node& node = c.network.nodes[unit.node];
  const auto dim = [](std::size_t n) { return static_cast<memory::dim>(n); };
  const memory::desc source = nhwc(c.network.nodes[node.inputs[0]].shape, rows, c.storage);
  const memory::desc destination = nhwc(node.shape, rows, c.storage);
  const memory::dims stride{dim(node.stride), dim(node.stride)},
      kernel{dim(node.kernel), dim(node.kernel)};
  const memory::dims padding{dim(node.padding), dim(node.padding)};
  const auto kind =
      c.spec.training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  constexpr auto algorithm = dnnl::algorithm::pooling_max;
  const auto forward = onednn::with_dense_kernel(kernel, [&](const auto&... dims) {
    return onednn::describe<dnnl::pooling_forward>(engine(), user_scratchpad(), kind, algorithm,
                                                   source, destination, stride, dims..., padding,
                                                   padding);
  });
  c.library_scratch = std::max(c.library_scratch, forward.scratchpad_desc().get_size());
  Prepared result;
  result.forward = dnnl::pooling_forward(forward);
  result.forward_arguments.assign(c.lanes, {});
  result.backward_arguments.assign(c.lanes, {});
  for (auto& arguments : result.forward_arguments)
    arguments = {{DNNL_ARG_SRC, memory(source, engine(), nullptr)},
                 {DNNL_ARG_DST, memory(destination, engine(), nullptr)}};
  if (!c.spec.training) return result;
  const memory::desc workspace = forward.workspace_desc();
  workspace_bytes_ = workspace.get_size() / rows;
  const auto backward = onednn::with_dense_kernel(kernel, [&](const auto&... dims) {
    return onednn::describe_backward<dnnl::pooling_backward>(engine(), user_scratchpad(), forward,
                                                             algorithm, source, destination, stride,
                                                             dims..., padding, padding);
  });
  c.library_scratch = std::max(c.library_scratch, backward.scratchpad_desc().get_size());
  result.backward = dnnl::pooling_backward(backward);
  for (std::size_t lane = 0; lane < c.lanes; ++lane) {
    const memory record(workspace, engine(), nullptr);
    result.forward_arguments[lane].emplace(DNNL_ARG_WORKSPACE, record);
    result.backward_arguments[lane] = {{DNNL_ARG_DIFF_DST, memory(destination, engine(), nullptr)},
                                       {DNNL_ARG_DIFF_SRC, memory(source, engine(), nullptr)},
                                       {DNNL_ARG_WORKSPACE, record}};
  }
  return result;
}

void PoolRunner::bind() {
  for (auto& [rows, prepared] : prepared_) {
    for (std::size_t lane = 0; lane < c.lanes; ++lane) {
      const memory scratch = library_scratch(c, lane);
      prepared.forward_arguments[lane].emplace(DNNL_ARG_SCRATCHPAD, scratch);
      prepared.backward_arguments[lane].emplace(DNNL_ARG_SCRATCHPAD, scratch);
    }
  }
}

void PoolRunner::before_forward(std::size_t lane) {
  if (PointRunner* input = inline_input()) input->before_forward(lane);
}

void PoolRunner::forward(const Chunk& chunk) {
  Prepared& p = prepared_.at(chunk.count);
  auto& arguments = p.forward_arguments[chunk.lane];
  arguments.at(DNNL_ARG_SRC)
      .set_data_handle(const_cast<std::byte*>(c.runners[*unit.input]->value(chunk)));
  arguments.at(DNNL_ARG_DST).set_data_handle(const_cast<std::byte*>(value(chunk)));
  if (c.spec.training)
    arguments.at(DNNL_ARG_WORKSPACE)
        .set_data_handle(c.at(workspace_) + chunk.first * workspace_bytes_);
  p.forward.execute(c.streams[chunk.lane], arguments);
}

std::byte* PoolRunner::dinput_at(const Chunk& chunk) const {
  const PointRunner* input = inline_input();
  return input ? input->gradient(chunk) : c.lane_at(chunk.lane, dinput_);
}

const std::byte* PoolRunner::output_gradient(const Chunk& chunk) {
  const std::byte* first = c.runners[unit.readers[0]]->input_gradient(chunk);
  check(unit.readers.size() <= 2, unit.name + ": the CPU backend sums at most two gradients");
  const std::byte* second = unit.readers.size() == 2
                                ? c.runners[unit.readers[1]]->input_gradient(chunk)
                                : c.runners[unit.readers[0]]->second_gradient(chunk);
  if (!second) return first;
  std::byte* sum = c.lane_at(chunk.lane, sum_);
  c.kernels.sum(first, second, chunk.count * out_bytes_ / bytes_of(c.storage), sum);
  return sum;
}

void PoolRunner::backward(const Chunk& chunk) {
  Prepared& p = prepared_.at(chunk.count);
  auto& arguments = p.backward_arguments[chunk.lane];
  arguments.at(DNNL_ARG_DIFF_DST).set_data_handle(const_cast<std::byte*>(output_gradient(chunk)));
  arguments.at(DNNL_ARG_DIFF_SRC).set_data_handle(dinput_at(chunk));
  arguments.at(DNNL_ARG_WORKSPACE)
      .set_data_handle(c.at(workspace_) + chunk.first * workspace_bytes_);
  p.backward.execute(c.streams[chunk.lane], arguments);
  if (PointRunner* input = inline_input()) input->backward(chunk);
}

void BandedPool::plan() {
  const nn::Node& node = c.network.nodes[unit.node];
  from_ = c.network.nodes[node.inputs[0]].shape;
  to_ = node.shape;
  const WindowLines window{from_.height, to_.height, node.kernel, node.stride, node.padding};
  for (std::size_t lane = 0; lane < c.lanes; ++lane) {
    jobs_.emplace_back();
    for (const Band& band : bands_of(window, c.spec.batch, lane, c.lanes))
      jobs_.back().push_back(job(band));
  }
}

BandedPool::Job BandedPool::job(const Band& band) {
  const nn::Node& node = c.network.nodes[unit.node];
  const auto dim = [](std::size_t n) { return static_cast<memory::dim>(n); };
  const memory::desc source = nhwc({from_.channels, band.in_count, from_.width}, 1, c.storage);
  const memory::desc destination = nhwc({to_.channels, band.count, to_.width}, 1, c.storage);
  const memory::dims stride{dim(node.stride), dim(node.stride)},
      kernel{dim(node.kernel), dim(node.kernel)}, before{dim(band.above), dim(node.padding)},
      after{dim(band.below), dim(node.padding)};
  const auto desc = onednn::with_dense_kernel(kernel, [&](const auto&... dims) {
    return onednn::describe<dnnl::pooling_forward>(
        engine(), user_scratchpad(), dnnl::prop_kind::forward_inference,
        dnnl::algorithm::pooling_max, source, destination, stride, dims..., before, after);
  });
  c.library_scratch = std::max(c.library_scratch, desc.scratchpad_desc().get_size());
  return {band,
          dnnl::pooling_forward(desc),
          {{DNNL_ARG_SRC, memory(source, engine(), nullptr)},
           {DNNL_ARG_DST, memory(destination, engine(), nullptr)}}};
}

void BandedPool::bind() {
  for (std::size_t lane = 0; lane < jobs_.size(); ++lane)
    for (Job& job : jobs_[lane])
      job.arguments.emplace(DNNL_ARG_SCRATCHPAD, library_scratch(c, lane));
}

void BandedPool::forward(const Chunk& chunk) {
  const auto line = [&](const nn::Shape& shape, std::size_t image, std::size_t first) {
    return (image * shape.height + first) * shape.width * shape.channels * bytes_of(c.storage);
  };
  for (Job& job : jobs_[chunk.lane]) {
    const Band& band = job.band;
    job.arguments.at(DNNL_ARG_SRC)
        .set_data_handle(const_cast<std::byte*>(c.runners[*unit.input]->value(chunk)) +
                         line(from_, band.image, band.in_first));
    job.arguments.at(DNNL_ARG_DST)
        .set_data_handle(const_cast<std::byte*>(value(chunk)) + line(to_, band.image, band.first));
    job.primitive.execute(c.streams[chunk.lane], job.arguments);
  }
}

}  // namespace lockstep::cpu
