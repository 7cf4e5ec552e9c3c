#include "reduce/packed_vectors.hpp"

#include <fmt/core.h>

#include <cstddef>
#include <optional>
#include <span>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"

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

std::uint64_t saved_steps(const ExchangeState& state, const std::string& name) {
  const auto steps = state.find(steps_key);
  const auto number =
      steps == state.end() ? std::nullopt : whole_number<std::uint64_t>(steps->second);
  require(number.has_value(),
          fmt::format("the state of the exchange '{}' has no number of steps", name));
  return *number;
}

void require_same_ranks(std::size_t saved_by, std::size_t world, const std::string& name) {
  require(saved_by == world,
          fmt::format("the state of the exchange '{}' is of {} ranks, and here are {}: continue "
                      "with {} ranks, or begin a run with --init",
                      name, saved_by, world, saved_by));
}

}  // namespace lockstep::reduce
