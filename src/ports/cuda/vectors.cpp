#include "ports/cuda/vectors.hpp"

#include <memory>

#include "ports/cuda/runtime/check.hpp"

namespace lockstep::cuda {

backend::DeviceMemory CudaVectors::allocate(std::size_t bytes, const std::string& what) {
  auto memory = std::make_shared<DeviceBuffer>(bytes, what.c_str());
  if (bytes > 0)
    check_cuda(cudaMemsetAsync(memory->data(), 0, bytes, device_.compute().get()),
               "cudaMemsetAsync");
  std::byte* data = memory->data();
  return {data, [memory](std::byte*) mutable { memory.reset(); }};
}

void CudaVectors::read(const void* from, std::span<std::byte> to) {
  if (to.empty()) return;
  check_cuda(
      cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, device_.compute().get()),
      "cudaMemcpyAsync");
  device_.compute().synchronize();
}

void CudaVectors::write(std::span<const std::byte> from, void* to) {
  if (from.empty()) return;
  check_cuda(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice,
                             device_.compute().get()),
             "cudaMemcpyAsync");
  device_.compute().synchronize();
}

void CudaVectors::cast(const backend::Vector& from, const backend::Vector& to) {
  check_vectors(from, to, "cast");
  if (from.count > 0) cast_vector(from, to, device_.compute().get());
}

void CudaVectors::add(float factor, const backend::Vector& from, const backend::Vector& to) {
  check_vectors(from, to, "add");
  if (from.count > 0) add_vector(factor, from, to, device_.compute().get());
}

void CudaVectors::scale(float factor, const backend::Vector& values) {
  check_vector(values, "scale");
  if (values.count > 0) scale_vector(factor, values, device_.compute().get());
}

void CudaVectors::largest(const backend::Vector& values, float* found) {
  check_vector(values, "largest");
  largest_value(values, found, device_.compute().get());
}

void CudaVectors::multiply(const backend::Matrix& matrix, const backend::Thin& columns,
                           const backend::Thin& product) {
  check_product(matrix, product, columns, "multiply");
  cuda::multiply(matrix, columns, product, device_.compute().get());
}

void CudaVectors::multiply_transposed(const backend::Matrix& matrix, const backend::Thin& rows,
                                      const backend::Thin& product) {
  check_product(matrix, rows, product, "multiply_transposed");
  cuda::multiply_transposed(matrix, rows, product, device_.compute().get());
}

void CudaVectors::add_product(float keep, float factor, const backend::Thin& rows,
                              const backend::Thin& columns, const backend::Matrix& to) {
  check_product(to, rows, columns, "add_product");
  cuda::add_product(keep, factor, rows, columns, to, device_.compute().get());
}

void CudaVectors::orthogonalise(const backend::Thin& vectors) {
  check_thin(vectors, "orthogonalise");
  cuda::orthogonalise(vectors, device_.compute().get());
}

}  // namespace lockstep::cuda
