#include "cpu/parameters.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::cpu {

namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

void reorder(const dnnl::memory::desc& from, const void* source, const dnnl::memory::desc& to,
             void* target) {
  dnnl::stream stream(engine());
  dnnl::memory a(from, engine(), const_cast<void*>(source)), b(to, engine(), target);
  dnnl::reorder(a, b).execute(stream, a, b);
  stream.wait();
}

dnnl::memory::desc plain_desc(const dnnl::memory::desc& like) {
  return {like.dims(), dnnl::memory::data_type::f32, dnnl::memory::format_tag::oihw};
}

}  // namespace

HostMemory::HostMemory(std::size_t bytes) {
  const std::size_t alignment = bytes >= huge_page ? huge_page : 64;
  const std::size_t rounded =
      (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (!data_) throw std::bad_alloc();
  if (bytes >= huge_page)
    madvise(data_.get(), rounded, MADV_HUGEPAGE);  // only a hint: may be refused
  std::memset(data_.get(), 0, rounded);
}

void HostMemory::Free::operator()(std::byte* p) const { std::free(p); }

CpuParameters::CpuParameters(const nn::Network& network, Storage storage) : storage_(storage) {
  for (std::size_t i = 0; i < network.nodes.size(); ++i)
    if (network.nodes[i].op == nn::Op::conv)
      formats_.emplace(i, ConvFormats::choose(ConvGeometry::of(network, i, storage)));
  for (const nn::Node& node : network.nodes) momentum_.push_back(node.momentum);
  layout_ = nn::arena_layout(network, [&](const nn::Tensor& tensor) {
    return tensor.role == nn::Role::conv_weight
               ? formats_.at(tensor.node).gradient.get_size() / sizeof(float)
               : tensor.count();
  });
  for (HostMemory& memory : memory_) memory = HostMemory(layout_.size * sizeof(float));
}

float* CpuParameters::at(Part part, std::size_t offset) const {
  return memory_[static_cast<std::size_t>(part)].as<float>() + offset;
}

std::size_t CpuParameters::slice_index(const std::string& name) const {
  return static_cast<std::size_t>(&layout_.find(name) - layout_.slices.data());
}

void CpuParameters::import_slice(Part part, std::size_t index, std::span<const float> plain) {
  const nn::Slice& slice = layout_.slices.at(index);
  check(plain.size() == slice.tensor.count(), slice.tensor.name + ": wrong size on import");
  float* target = at(part, slice.offset);
  if (slice.tensor.role != nn::Role::conv_weight) {
    std::copy(plain.begin(), plain.end(), target);
    return;
  }
  const dnnl::memory::desc& format = formats(slice.tensor.node).gradient;
  reorder(plain_desc(format), plain.data(), format, target);
}

void CpuParameters::export_slice(Part part, std::size_t index, std::span<float> plain) const {
  const nn::Slice& slice = layout_.slices.at(index);
  check(plain.size() == slice.tensor.count(), slice.tensor.name + ": wrong size on export");
  const float* source = at(part, slice.offset);
  if (slice.tensor.role != nn::Role::conv_weight) {
    std::copy(source, source + plain.size(), plain.begin());
    return;
  }
  const dnnl::memory::desc& format = formats(slice.tensor.node).gradient;
  reorder(format, source, plain_desc(format), plain.data());
}

std::uint32_t CpuParameters::hash() const {
  const std::size_t bytes = layout_.size * sizeof(float);
  return crc32c(at(Part::momentum, 0), bytes, crc32c(at(Part::weights, 0), bytes));
}

}  // namespace lockstep::cpu
