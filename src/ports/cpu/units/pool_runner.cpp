#include "ports/cpu/units/pool_runner.hpp"

#include <algorithm>
#include <onednn_calls.hpp>

#include "lockstep/base/error.hpp"

namespace lockstep::cpu {

namespace {

using dnnl::memory;

/// Padding is left out of means.
dnnl::algorithm algorithm_of(const nn::Node& node) {
  return node.op == nn::Op::avg_pool ? dnnl::algorithm::pooling_avg_exclude_padding
                                     : dnnl::algorithm::pooling_max;
}

/// How many pixels the last windows reach beyond the image.
memory::dim beyond(const nn::Node& node, std::size_t outputs, std::size_t inputs) {
  const std::size_t end = (outputs - 1) * node.stride + node.kernel;
  return static_cast<memory::dim>(end - std::min(end, inputs + node.padding));
}

}  // namespace

memory::desc nhwc(const nn::Shape& shape, std::size_t rows, Storage storage) {
  const auto type = storage == Storage::fp32 ? memory::data_type::f32 : memory::data_type::bf16;
  const auto dim = [](std::size_t n) { return static_cast<memory::dim>(n); };
  return {{dim(rows), dim(shape.channels), dim(shape.height), dim(shape.width)},
          type,
          memory::format_tag::nhwc};
}

void Pool::plan_input() {
  from_ = c.runners[*unit.input]->map;
  if (!c.units[*unit.input].in_region)
    inline_input_ = static_cast<PointRunner*>(c.runners[*unit.input]);
}

void Pool::plan_training(std::size_t most_lines) {
  c.value_places[index] = {false, c.value_buffer(map.bytes() * c.spec.batch, index)};
  sum_ = c.fixed_scratch(unit.level, most_lines * map.line_bytes);
  if (!inline_input_) dinput_ = c.gradient_place(index, from_.with(c.held[index].input_gradient));
}

void Pool::plan_messages() {
  c.share_lines(c.made_values[unit.level], c.value_places[index].at, map, index, &UnitLines::value);
  if (dinput_.buffer)
    c.share_lines(c.made_gradients[unit.level], *dinput_.buffer, dinput_.map, index,
                  &UnitLines::input_gradient);
}

void Pool::before_forward(std::size_t lane) {
  if (inline_input_) inline_input_->before_forward(lane);
}

std::byte* Pool::dinput_at(const Chunk& chunk) const {
  return inline_input_ ? inline_input_->gradient(from_.of(chunk)) : c.at(dinput_, chunk);
}

const std::byte* Pool::output_gradient(const Chunk& chunk, const nn::LineRange& lines) {
  check(unit.readers.size() <= 2, unit.name + ": the CPU backend sums at most two gradients");
  Runner& reader = *c.runners[unit.readers[0]];
  const std::byte* first = reader.input_gradient(chunk);
  const std::byte* second = unit.readers.size() == 2
                                ? c.runners[unit.readers[1]]->input_gradient(chunk)
                                : reader.second_gradient(chunk);
  const std::ptrdiff_t before = static_cast<std::ptrdiff_t>(lines.first * map.line_bytes) -
                                static_cast<std::ptrdiff_t>(map.of(chunk).first * map.line_bytes);
  if (!second) return first + before;
  std::byte* sum = c.lane_at(chunk.lane, sum_);
  c.kernels.sum(first + before, second + before, map.pixels(lines) * map.shape.channels, sum);
  return sum;
}

void PoolRunner::plan() {
  plan_input();
  for (const std::size_t rows : chunk_sizes(c.regions[unit.level]))
    prepared_.emplace(rows, prepare(rows));
  if (!c.spec.training) return;
  plan_training(c.most_lines(unit.level, map));
  if (workspace_bytes_ > 0) workspace_ = c.value_buffer(workspace_bytes_ * c.spec.batch, index);
}

PoolRunner::Prepared PoolRunner::prepare(std::size_t rows) {
  const nn::Node& node = c.network.nodes[unit.node];
  const auto dim = [](std::size_t n) { return static_cast<memory::dim>(n); };
  const memory::desc source = nhwc(from_.shape, rows, c.storage);
  const memory::desc destination = nhwc(node.shape, rows, c.storage);
  const memory::dims stride{dim(node.stride), dim(node.stride)},
      kernel{dim(node.kernel), dim(node.kernel)};
  const memory::dims before{dim(node.padding), dim(node.padding)},
      after{beyond(node, map.shape.height, from_.shape.height),
            beyond(node, map.shape.width, from_.shape.width)};
  const auto kind =
      c.spec.training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  const auto algorithm = algorithm_of(node);
  const auto forward = onednn::with_dense_kernel(kernel, [&](const auto&... dims) {
    return onednn::describe<dnnl::pooling_forward>(engine(), user_scratchpad(), kind, algorithm,
                                                   source, destination, stride, dims..., before,
                                                   after);
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
  const memory::desc workspace = forward.workspace_desc();  // empty for means
  workspace_bytes_ = workspace.get_size() / rows;
  const auto backward = onednn::with_dense_kernel(kernel, [&](const auto&... dims) {
    return onednn::describe_backward<dnnl::pooling_backward>(engine(), user_scratchpad(), forward,
                                                             algorithm, source, destination, stride,
                                                             dims..., before, after);
  });
  c.library_scratch = std::max(c.library_scratch, backward.scratchpad_desc().get_size());
  result.backward = dnnl::pooling_backward(backward);
  for (std::size_t lane = 0; lane < c.lanes; ++lane) {
    auto &ahead = result.forward_arguments[lane], &back = result.backward_arguments[lane];
    back = {{DNNL_ARG_DIFF_DST, memory(destination, engine(), nullptr)},
            {DNNL_ARG_DIFF_SRC, memory(source, engine(), nullptr)}};
    if (workspace_bytes_ == 0) continue;
    for (auto* arguments : {&ahead, &back})
      arguments->emplace(DNNL_ARG_WORKSPACE, memory(workspace, engine(), nullptr));
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

void PoolRunner::set_workspace(Arguments& arguments, const Chunk& chunk) const {
  const auto found = arguments.find(DNNL_ARG_WORKSPACE);
  if (found != arguments.end())
    found->second.set_data_handle(c.at(workspace_) + chunk.first * workspace_bytes_);
}

void PoolRunner::forward(const Chunk& chunk) {
  Prepared& p = prepared_.at(chunk.count);
  auto& arguments = p.forward_arguments[chunk.lane];
  arguments.at(DNNL_ARG_SRC)
      .set_data_handle(const_cast<std::byte*>(c.runners[*unit.input]->value(chunk)));
  arguments.at(DNNL_ARG_DST).set_data_handle(const_cast<std::byte*>(value(chunk)));
  set_workspace(arguments, chunk);
  p.forward.execute(c.streams[chunk.lane], arguments);
}

void PoolRunner::backward(const Chunk& chunk) {
  Prepared& p = prepared_.at(chunk.count);
  auto& arguments = p.backward_arguments[chunk.lane];
  arguments.at(DNNL_ARG_DIFF_DST)
      .set_data_handle(const_cast<std::byte*>(output_gradient(chunk, map.of(chunk))));
  arguments.at(DNNL_ARG_DIFF_SRC).set_data_handle(dinput_at(chunk));
  set_workspace(arguments, chunk);
  p.backward.execute(c.streams[chunk.lane], arguments);
  if (inline_input_) inline_input_->backward(chunk);
}

void BandedPool::plan() {
  plan_input();
  window_ = window_of(c.network, unit);
  std::size_t most = 0;
  c.regions[unit.level].each_chunk([&](const Chunk& chunk) {
    jobs_.emplace_back();
    if (!c.has_bands) {
      for (const Band& band : bands_of(window_, c.spec.batch, chunk.lane, c.lanes)) add_job(band);
      return;
    }
    add_job(band_of(window_, chunk.image(), chunk.in_image(map.shape.height)));
    most = std::max(most, pass_of(chunk).outs.count);
  });
  if (!c.spec.training) return;
  plan_training(most);
  for (const std::size_t reader : unit.readers) {
    const Unit& reads = c.units[reader];
    check(!reads.pad && (reads.kind == UnitKind::conv || reads.kind == UnitKind::point),
          unit.name + ": bands of lines need a reader whose gradients are in memory");
  }
}

void BandedPool::add_job(const Band& band) {
  const nn::Node& node = c.network.nodes[unit.node];
  const auto dim = [](std::size_t n) { return static_cast<memory::dim>(n); };
  const nn::Shape &from = from_.shape, &to = map.shape;
  const memory::desc source = nhwc({from.channels, band.in_count, from.width}, 1, c.storage);
  const memory::desc destination = nhwc({to.channels, band.count, to.width}, 1, c.storage);
  const memory::dims stride{dim(node.stride), dim(node.stride)},
      kernel{dim(node.kernel), dim(node.kernel)}, before{dim(band.above), dim(node.padding)},
      after{dim(band.below), beyond(node, to.width, from.width)};
  const auto desc = onednn::with_dense_kernel(kernel, [&](const auto&... dims) {
    return onednn::describe<dnnl::pooling_forward>(
        engine(), user_scratchpad(), dnnl::prop_kind::forward_inference, algorithm_of(node), source,
        destination, stride, dims..., before, after);
  });
  c.library_scratch = std::max(c.library_scratch, desc.scratchpad_desc().get_size());
  jobs_.back().push_back({band,
                          dnnl::pooling_forward(desc),
                          {{DNNL_ARG_SRC, memory(source, engine(), nullptr)},
                           {DNNL_ARG_DST, memory(destination, engine(), nullptr)}}});
}

void BandedPool::bind() {
  c.regions[unit.level].each_chunk([&](const Chunk& chunk) {
    for (Job& job : jobs_[chunk.index])
      job.arguments.emplace(DNNL_ARG_SCRATCHPAD, library_scratch(c, chunk.lane));
  });
}

void BandedPool::forward(const Chunk& chunk) {
  for (Job& job : jobs_[chunk.index]) {
    const Band& band = job.band;
    const nn::LineRange in{band.image * from_.shape.height + band.in_first, band.in_count},
        out{band.image * map.shape.height + band.first, band.count};
    const std::byte* from = c.runners[*unit.input]->value(chunk, in);
    job.arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<std::byte*>(from));
    job.arguments.at(DNNL_ARG_DST).set_data_handle(const_cast<std::byte*>(value(chunk, out)));
    job.primitive.execute(c.streams[chunk.lane], job.arguments);
  }
}

/// In lines of its image.
PoolBackward BandedPool::pass_of(const Chunk& chunk) const {
  const nn::LineRange in = chunk.in_image(from_.shape.height);
  const nn::LineRange outs = nn::readers_of(window_, in).lines;
  return {.window = window_,
          .width = from_.shape.width,
          .out_width = map.shape.width,
          .in = in,
          .outs = outs,
          .read = outs.count > 0 ? nn::read_by(window_, outs).lines : nn::LineRange{},
          .x = nullptr,
          .dy = nullptr,
          .dx = nullptr};
}

void BandedPool::backward(const Chunk& chunk) {
  PoolBackward pass = pass_of(chunk);
  const nn::LineRange read = pass.read.after(chunk.image() * from_.shape.height);
  if (unit.looks_again) pass.x = c.runners[*unit.input]->value(chunk, read);
  pass.dy = output_gradient(chunk, pass.outs.after(chunk.image() * map.shape.height));
  pass.dx = dinput_at(chunk);
  c.kernels.pool_backward(pass, map.shape.channels);
  if (inline_input_) inline_input_->backward(chunk);
}

}  // namespace lockstep::cpu
