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

namespace {

/// The point that only this unit reads, and runs; else nullptr.
PointRunner* inline_point(const Context& c, const Unit& unit) {
  return c.units[*unit.input].in_region ? nullptr
                                        : static_cast<PointRunner*>(c.runners[*unit.input]);
}

}  // namespace

void PoolRunner::plan() {
  from_ = c.runners[*unit.input]->map;
  inline_input_ = inline_point(c, unit);
  for (const std::size_t rows : chunk_sizes(c.regions[unit.level]))
    prepared_.emplace(rows, prepare(rows));
  if (!c.spec.training) return;
  c.value_places[index] = {false, c.value_buffer(map.bytes() * c.spec.batch, index)};
  workspace_ = c.value_buffer(workspace_bytes_ * c.spec.batch, index);
  sum_ = c.scratch(unit.level, map);
  if (!inline_input_) dinput_ = c.scratch(unit.level, from_);
}

PoolRunner::Prepared PoolRunner::prepare(std::size_t rows) {
  const nn::Node& node = c.network.nodes[unit.node];
  const auto dim = [](std::size_t n) { return static_cast<memory::dim>(n); };
  const memory::desc source = nhwc(from_.shape, rows, c.storage);
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
  if (inline_input_) inline_input_->before_forward(lane);
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
  return inline_input_ ? inline_input_->gradient(from_.of(chunk)) : c.lane_at(chunk.lane, dinput_);
}

const std::byte* PoolRunner::output_gradient(const Chunk& chunk) {
  const std::byte* first = c.runners[unit.readers[0]]->input_gradient(chunk);
  check(unit.readers.size() <= 2, unit.name + ": the CPU backend sums at most two gradients");
  const std::byte* second = unit.readers.size() == 2
                                ? c.runners[unit.readers[1]]->input_gradient(chunk)
                                : c.runners[unit.readers[0]]->second_gradient(chunk);
  if (!second) return first;
  std::byte* sum = c.lane_at(chunk.lane, sum_);
  c.kernels.sum(first, second, map.pixels(map.of(chunk)) * map.shape.channels, sum);
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
  if (inline_input_) inline_input_->backward(chunk);
}

void BandedPool::plan() {
  const nn::Node& node = c.network.nodes[unit.node];
  from_ = c.runners[*unit.input]->map;
  window_ = {from_.shape.height, map.shape.height, node.kernel, node.stride, node.padding};
  c.regions[unit.level].each_chunk([&](const Chunk& chunk) {
    jobs_.emplace_back();
    if (c.has_bands) return add_job(band_of(chunk));
    for (const Band& band : bands_of(window_, c.spec.batch, chunk.lane, c.lanes)) add_job(band);
  });
  if (!c.spec.training) return;
  inline_input_ = inline_point(c, unit);
  c.value_places[index] = {false, c.value_buffer(map.bytes() * c.spec.batch, index)};
  std::size_t most = 0;
  c.regions[unit.level].each_chunk(
      [&](const Chunk& chunk) { most = std::max(most, pass_of(chunk).outs.count); });
  sum_ = c.fixed_scratch(unit.level, most * map.line_bytes);
  if (!inline_input_) dinput_ = c.scratch(unit.level, from_);
  for (const std::size_t reader : unit.readers) {
    const Unit& reads = c.units[reader];
    check(!reads.pad && (reads.kind == UnitKind::conv || reads.kind == UnitKind::point),
          unit.name + ": bands of lines need a reader whose gradients are in memory");
  }
}

Band BandedPool::band_of(const Chunk& chunk) const {
  const std::size_t image = chunk.first / chunk.stripes;
  const nn::LineRange out = map.of(chunk);
  const std::size_t first = out.first - image * map.shape.height;
  const nn::Reach read = nn::read_by(window_, {first, out.count});
  return {.image = image,
          .first = first,
          .count = out.count,
          .in_first = read.lines.first,
          .in_count = read.lines.count,
          .above = read.above,
          .below = read.below};
}

void BandedPool::add_job(const Band& band) {
  const nn::Node& node = c.network.nodes[unit.node];
  const auto dim = [](std::size_t n) { return static_cast<memory::dim>(n); };
  const nn::Shape &from = from_.shape, &to = map.shape;
  const memory::desc source = nhwc({from.channels, band.in_count, from.width}, 1, c.storage);
  const memory::desc destination = nhwc({to.channels, band.count, to.width}, 1, c.storage);
  const memory::dims stride{dim(node.stride), dim(node.stride)},
      kernel{dim(node.kernel), dim(node.kernel)}, before{dim(band.above), dim(node.padding)},
      after{dim(band.below), dim(node.padding)};
  const auto desc = onednn::with_dense_kernel(kernel, [&](const auto&... dims) {
    return onednn::describe<dnnl::pooling_forward>(
        engine(), user_scratchpad(), dnnl::prop_kind::forward_inference,
        dnnl::algorithm::pooling_max, source, destination, stride, dims..., before, after);
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

void BandedPool::before_forward(std::size_t lane) {
  if (inline_input_) inline_input_->before_forward(lane);
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
  const std::size_t image = chunk.first / chunk.stripes;
  nn::LineRange in = from_.of(chunk);
  in.first -= image * from_.shape.height;
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

std::byte* BandedPool::dinput_at(const Chunk& chunk) const {
  return inline_input_ ? inline_input_->gradient(from_.of(chunk)) : c.lane_at(chunk.lane, dinput_);
}

/// Its readers ran in later regions, so that all lines are there.
const std::byte* BandedPool::output_gradient(const Chunk& chunk, const nn::LineRange& lines) {
  const std::ptrdiff_t before = static_cast<std::ptrdiff_t>(lines.first * map.line_bytes) -
                                static_cast<std::ptrdiff_t>(map.of(chunk).first * map.line_bytes);
  const std::byte* first = c.runners[unit.readers[0]]->input_gradient(chunk) + before;
  if (unit.readers.size() == 1) return first;
  check(unit.readers.size() == 2, unit.name + ": the CPU backend sums at most two gradients");
  std::byte* sum = c.lane_at(chunk.lane, sum_);
  c.kernels.sum(first, c.runners[unit.readers[1]]->input_gradient(chunk) + before,
                map.pixels(lines) * map.shape.channels, sum);
  return sum;
}

void BandedPool::backward(const Chunk& chunk) {
  const std::size_t image = chunk.first / chunk.stripes;
  PoolBackward pass = pass_of(chunk);
  const nn::LineRange outs{image * map.shape.height + pass.outs.first, pass.outs.count},
      read{image * from_.shape.height + pass.read.first, pass.read.count};
  pass.x = c.runners[*unit.input]->value(chunk, read);
  pass.dy = output_gradient(chunk, outs);
  pass.dx = dinput_at(chunk);
  c.kernels.pool_backward(pass, map.shape.channels);
  if (inline_input_) inline_input_->backward(chunk);
}

}  // namespace lockstep::cpu
