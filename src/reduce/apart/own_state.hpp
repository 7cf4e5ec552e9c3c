#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/backend/vectors.hpp"
#include "lockstep/reduce/exchange.hpp"
#include "reduce/plain_state.hpp"

namespace lockstep::reduce {

/// Ranks that need not meet do after this many steps: a run may stop that much later.
constexpr std::size_t most_steps_apart = 8;

/// What a rank trains where ranks differ. While settled, the parameters are the mean of all ranks,
/// and this keeps the rank's own.
class OwnState {
 public:
  explicit OwnState(const ExchangeParts& parts) : parts_(parts) {}

  backend::Vector of(backend::Part part, std::size_t first, std::size_t count) const;
  backend::Vector of(backend::Part part) const { return of(part, 0, layout().size); }
  /// Memory for a whole part of the parameters, as a vector.
  backend::DeviceMemory allocate(const char* what) const;
  backend::Vector in(const backend::DeviceMemory& memory) const {
    return in(memory, layout().size);
  }
  /// Its first numbers.
  backend::Vector in(const backend::DeviceMemory& memory, std::size_t count) const;
  /// All that steps change: weights, momentum, and what else the run keeps.
  std::vector<backend::Vector> changing() const;
  /// The same, to be saved.
  std::vector<ArenaPart> saved() const;

  /// The values become their mean over the ranks, the same bits. Collective.
  void average(const backend::Vector& values, const char* what) const;
  /// Puts all that changes aside, into vectors of the whole arena that are `free` until unsettle(),
  /// and into other memory where these are too few. Then it calls `prepare`, which may change
  /// the weights, and averages. Throws Error when the ranks are settled already. Collective.
  void settle(std::span<const backend::Vector> free = {},
              const std::function<void()>& prepare = {});
  void unsettle();  ///< nothing where ranks are not settled
  bool is_settled() const { return !aside_.empty(); }

 private:
  const nn::ArenaLayout& layout() const { return parts_.parameters.layout(); }
  std::vector<backend::Part> changing_parts() const;

  const ExchangeParts parts_;
  std::vector<backend::Vector> aside_;         ///< while settled, of changing_parts()
  std::vector<backend::DeviceMemory> memory_;  ///< of the last ones
};

/// Bytes that settling takes, for that many trained numbers: of weights, momentum, and so on, but
/// for those that go to that many free vectors.
std::size_t settling_bytes(std::size_t numbers, bool average, bool second_moments,
                           std::size_t free = 0);

}  // namespace lockstep::reduce
