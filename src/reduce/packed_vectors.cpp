#include "reduce/packed_vectors.hpp"

#include <cstddef>
#include <span>

namespace lockstep::reduce {
namespace {

std::size_t bytes_of(const std::vector<backend::Vector>& values) {
  std::size_t sum = 0;
  for (const backend::Vector& one : values) sum += one.elements().bytes();
  return sum;
}

}  // namespace

std::string packed(backend::Vectors& vectors, const std::vector<backend::Vector>& values) {
  std::string bytes(bytes_of(values), '\0');
  std::span<std::byte> left = std::as_writable_bytes(std::span(bytes));
  for (const backend::Vector& one : values) {
    vectors.read(one.data, left.first(one.elements().bytes()));
    left = left.subspan(one.elements().bytes());
  }
  return bytes;
}

bool unpack(backend::Vectors& vectors, std::string_view bytes,
            const std::vector<backend::Vector>& to) {
  if (bytes.size() != bytes_of(to)) return false;
  std::span<const std::byte> left = std::as_bytes(std::span(bytes));
  for (const backend::Vector& one : to) {
    vectors.write(left.first(one.elements().bytes()), one.data);
    left = left.subspan(one.elements().bytes());
  }
  return true;
}

}  // namespace lockstep::reduce
