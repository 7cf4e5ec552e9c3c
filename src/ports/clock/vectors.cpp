#include "ports/clock/vectors.hpp"

#include <algorithm>
#include <memory>

#include "ports/clock/parameters.hpp"

namespace lockstep::clock {

backend::DeviceMemory ClockVectors::allocate(std::size_t bytes, const std::string&) {
  auto memory = std::make_shared<FoldedMemory>(bytes);
  auto* data = reinterpret_cast<std::byte*>(memory->data());
  return {data, [memory](std::byte*) mutable { memory.reset(); }};
}

void ClockVectors::read(const void*, std::span<std::byte> to) {
  std::fill(to.begin(), to.end(), std::byte{0});
}

void ClockVectors::write(std::span<const std::byte>, void*) {}

void ClockVectors::cast(const backend::Vector& from, const backend::Vector& to) {
  check_vectors(from, to, "cast");
}

void ClockVectors::add(float, const backend::Vector& from, const backend::Vector& to) {
  check_vectors(from, to, "add");
}

void ClockVectors::scale(float, const backend::Vector& values) { check_vector(values, "scale"); }

void ClockVectors::largest(const backend::Vector& values, float* found) {
  check_vector(values, "largest");
  *found = 0;
}

void ClockVectors::select(const backend::Vector& values, float, const float*) {
  check_vector(values, "select");
}

}  // namespace lockstep::clock
