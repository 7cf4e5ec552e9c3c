#include "ports/cpu/parameters.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <new>
#include <utility>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::cpu {

namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

}  // namespace

// Fresh pages from the system: zero, and resident only once they are touched. So unused scratch
// costs nothing, and pages are near the thread that first writes them.
HostMemory::HostMemory(std::size_t bytes) : mapped_(bytes + huge_page) {
  void* whole = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(whole);
  const auto address = reinterpret_cast<std::uintptr_t>(base_);
  data_ = base_ + ((address + huge_page - 1) / huge_page * huge_page - address);
  if (bytes >= huge_page) madvise(data_, bytes, MADV_HUGEPAGE);  // only a hint: it may fail
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      mapped_(other.mapped_) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(data_, other.data_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

void HostMemory::discard() {
  if (base_) madvise(base_, mapped_, MADV_DONTNEED);
}

HostMemory::~HostMemory() {
  if (base_) munmap(base_, mapped_);
}

CpuParameters::CpuParameters(const nn::Network& network, Storage storage, backend::Keeps keeps,
                             Team* team)
    : storage_(storage), team_(team), keeps_folded_(keeps == backend::Keeps::weights) {
  for (std::size_t i = 0; i < network.nodes.size(); ++i)
    if (network.nodes[i].op == nn::Op::conv)
      formats_.emplace(i, ConvFormats::choose(ConvGeometry::of(network, i, storage)));
  for (const nn::Node& node : network.nodes) momentum_.push_back(node.momentum);
  layout_ = nn::arena_layout(network, [&](const nn::Tensor& tensor) {
    return tensor.role == nn::Role::conv_weight
               ? formats_.at(tensor.node).gradient.get_size() / sizeof(float)
               : tensor.count();
  });
  for (nn::Slice& slice : layout_.slices)
    if (slice.tensor.role == nn::Role::conv_weight)
      slice.form = matrix_form(formats_.at(slice.tensor.node).gradient);
  const std::size_t parts = keeps == backend::Keeps::nothing    ? 0
                            : keeps == backend::Keeps::training ? average_part
                                                                : 1;
  for (std::size_t part = 0; part < parts; ++part)
    memory_[part] = HostMemory(layout_.size * sizeof(float));
  trust_.resize(layout_.slices.size());
}

FoldedWeights* CpuParameters::folded(std::size_t conv_node, const dnnl::memory::desc& format,
                                     std::size_t bytes) {
  if (!keeps_folded_) return nullptr;
  std::list<FoldedWeights>& known = folded_[conv_node];
  const auto same = std::ranges::find(known, format, &FoldedWeights::format);
  return same != known.end() ? &*same
                             : &known.emplace_back(format, HostMemory(bytes), std::nullopt);
}

void CpuParameters::start_average() {
  if (!has_average()) memory_[average_part] = HostMemory(layout_.size * sizeof(float));
  std::copy_n(at(backend::Part::weights, 0), layout_.size, at(backend::Part::average, 0));
}

void CpuParameters::start_second_moments() {
  memory_[moments_part] = HostMemory(layout_.size * sizeof(float));
}

std::optional<optim::TrustRatios> CpuParameters::trust_ratios() const {
  return optim::spread_of(trust_by_slice());
}

float* CpuParameters::room(std::size_t floats) {
  if (floats > room_floats_) {
    room_ = HostMemory();
    room_ = HostMemory(floats * sizeof(float));
    room_floats_ = floats;
  }
  return room_.as<float>();
}

float* CpuParameters::at(backend::Part part, std::size_t offset) const {
  const HostMemory& memory = memory_[static_cast<std::size_t>(part)];
  return memory.data() != nullptr ? memory.as<float>() + offset : nullptr;
}

std::size_t CpuParameters::slice_index(const std::string& name) const {
  return static_cast<std::size_t>(&layout_.find(name) - layout_.slices.data());
}

void CpuParameters::import_own(backend::Part part, std::size_t index,
                               std::span<const float> plain) {
  const nn::Slice& slice = layout_.slices.at(index);
  check(plain.size() == slice.tensor.count(), slice.tensor.name + ": wrong size on import");
  if (part == backend::Part::weights) weights_changed();
  float* target = at(part, slice.offset);
  if (slice.tensor.role != nn::Role::conv_weight) {
    std::copy(plain.begin(), plain.end(), target);
    return;
  }
  const dnnl::memory::desc& format = formats(slice.tensor.node).gradient;
  reorder(plain_weights(format), plain.data(), format, target);
}

void CpuParameters::export_own(backend::Part part, std::size_t index,
                               std::span<float> plain) const {
  const nn::Slice& slice = layout_.slices.at(index);
  check(plain.size() == slice.tensor.count(), slice.tensor.name + ": wrong size on export");
  const float* source = at(part, slice.offset);
  if (slice.tensor.role != nn::Role::conv_weight) {
    std::copy(source, source + plain.size(), plain.begin());
    return;
  }
  const dnnl::memory::desc& format = formats(slice.tensor.node).gradient;
  reorder(format, source, plain_weights(format), plain.data());
}

void CpuParameters::for_each(std::size_t count,
                             const std::function<void(std::size_t)>& work) const {
  if (!team_) return Parameters::for_each(count, work);
  std::atomic<std::size_t> next{0};
  team_->run([&](std::size_t) {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  });
}

std::uint32_t CpuParameters::own_hash() const {
  std::uint32_t sum = 0;
  for (const backend::Part part : {backend::Part::weights, backend::Part::momentum,
                                   backend::Part::average, backend::Part::second_moments})
    if (const float* kept = at(part, 0)) sum = crc32c(kept, layout_.size * sizeof(float), sum);
  return sum;
}

}  // namespace lockstep::cpu
