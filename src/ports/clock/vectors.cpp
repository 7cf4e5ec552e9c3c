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

void ClockVectors::multiply(const backend::Matrix& matrix, const backend::Thin& columns,
                            const backend::Thin& product) {
  check_product(matrix, product, columns, "multiply");
}

void ClockVectors::multiply_transposed(const backend::Matrix& matrix, const backend::Thin& rows,
                                       const backend::Thin& product) {
  check_product(matrix, rows, product, "multiply_transposed");
}

void ClockVectors::add_product(float, float, const backend::Thin& rows,
                               const backend::Thin& columns, const backend::Matrix& to) {
  check_product(to, rows, columns, "add_product");
}

void ClockVectors::orthogonalise(const backend::Thin& vectors) {
  check_thin(vectors, "orthogonalise");
}

}  // namespace lockstep::clock
