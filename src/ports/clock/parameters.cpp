#include "ports/clock/parameters.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::clock {
namespace {

constexpr std::size_t fold = std::size_t{2} << 20;

void* must(void* address) {
  if (address == MAP_FAILED) throw std::bad_alloc();
  return address;
}

}  // namespace

FoldedMemory::FoldedMemory(std::size_t bytes) : mapped_((bytes + fold - 1) / fold * fold) {
  if (mapped_ == 0) return;
  base_ = must(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  auto* start = static_cast<std::byte*>(base_);
  must(mmap(start, fold, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  // Of shared memory, an old size of 0 makes a second view of the same pages.
  for (std::size_t at = fold; at < mapped_; at += fold)
    must(mremap(start, 0, fold, MREMAP_MAYMOVE | MREMAP_FIXED, start + at));
}

FoldedMemory::FoldedMemory(FoldedMemory&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), mapped_(other.mapped_) {}

FoldedMemory& FoldedMemory::operator=(FoldedMemory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

FoldedMemory::~FoldedMemory() {
  if (base_) munmap(base_, mapped_);
}

ClockParameters::ClockParameters(const nn::Network& network, double update_ms)
    : layout_(backend::plain_layout(network)), update_ms_(update_ms) {
  for (std::size_t s = 0; s < layout_.learned_slices; ++s) learned_ += layout_.slices[s].size;
  for (FoldedMemory& part : memory_) part = FoldedMemory(layout_.size * sizeof(float));
}

float* ClockParameters::device_pointer(backend::Part part) {
  return memory_[static_cast<std::size_t>(part)].data();
}

void ClockParameters::import_own(backend::Part, std::size_t slice, std::span<const float> plain) {
  const nn::Tensor& tensor = layout_.slices.at(slice).tensor;
  check(plain.size() == tensor.count(), tensor.name + ": wrong size on import");
}

void ClockParameters::export_own(backend::Part, std::size_t slice, std::span<float> plain) const {
  const nn::Tensor& tensor = layout_.slices.at(slice).tensor;
  check(plain.size() == tensor.count(), tensor.name + ": wrong size on export");
  std::fill(plain.begin(), plain.end(), 0.f);
}

double ClockParameters::update_ms(std::size_t first, std::size_t last) const {
  std::size_t floats = 0;
  for (std::size_t s = first; s < last; ++s) floats += layout_.slices.at(s).size;
  return update_ms_ * static_cast<double>(floats) / static_cast<double>(learned_);
}

}  // namespace lockstep::clock
