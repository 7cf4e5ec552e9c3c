#include "ports/cpu/units/banded_pool.hpp"

#include <algorithm>

#include "ports/cpu/units/pool_runner.hpp"

namespace lockstep::cpu {

using dnnl::memory;

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
  const dnnl::pooling_forward::primitive_desc desc(
      {dnnl::prop_kind::forward_inference, dnnl::algorithm::pooling_max, source, destination,
       stride, kernel, before, after},
      user_scratchpad(), engine());
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
