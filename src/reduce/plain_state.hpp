#pragma once

// Why states travel through the gradients. A backend knows how to turn a part of the parameters
// into the plain layout; an exchange's other vectors lie as the arena does. Between two steps
// gradients mean nothing, so a vector is put there, goes to rank 0, where ranks differ, and leaves
// it tensor by tensor: no rank needs memory for it, and no backend a further conversion.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/backend/vectors.hpp"
#include "lockstep/reduce/exchange.hpp"

namespace lockstep::reduce {

/// A vector that lies as the arena does, from its beginning on.
struct ArenaPart {
  std::size_t slices = 0;      ///< the first ones of the arena
  bool half = false;           ///< its numbers are bf16's, and take two bytes each
  std::function<void()> give;  ///< puts it into the gradients
  std::function<void()> take;  ///< gets it from them
};
/// Of fp32: a whole vector of the arena, or of its learned slices.
ArenaPart arena_part(const ExchangeParts& parts, const backend::Vector& values);

/// Bytes of them in the plain layout.
std::size_t plain_bytes(const nn::ArenaLayout& layout, const std::vector<ArenaPart>& all);

/// `take` on rank 0 gets what `owner` has, one vector after the other. Each rank calls it.
void save_plain(const ExchangeParts& parts, int owner, const std::vector<ArenaPart>& all,
                const TakeBytes& take);
/// Puts a part of a state back. False where it is not there, or of another size.
bool load_plain(const ExchangeParts& parts, const SavedState& state, const std::string& name,
                const std::vector<ArenaPart>& all);

/// How ranks wait between one rank's part and the next one's: each has its own deadline.
/// Collective.
void next_part(comm::Control& control);

/// The number of steps in the state of an exchange of this name. Throws InputError without one.
std::uint64_t saved_steps(const SavedState& state, const std::string& name);
constexpr const char* steps_key = "steps";
/// A rank's part of a state.
constexpr const char* rank_prefix = "rank-";
std::string rank_key(std::size_t rank);

/// Whether an older lockstep saved the state, as numbers lay in the memory of its ranks: these may
/// lie in another order here, and nothing in the file says in which.
bool is_unordered(const SavedState& state);
/// What load() returns then.
std::string of_older(std::string_view what);
/// What load() returns where another number of ranks or groups saved the state: "... (of 4 ranks,
/// now 2)".
std::string of_others(std::string_view what, std::size_t saved_by, std::string_view who,
                      std::size_t now);

}  // namespace lockstep::reduce
