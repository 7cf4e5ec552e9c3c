#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/backend/vectors.hpp"
#include "lockstep/reduce/exchange.hpp"

namespace lockstep::reduce {

/// The bytes of some vectors, one after the other: one rank's part of an exchange's state.
std::string packed(backend::Vectors& vectors, const std::vector<backend::Vector>& values);

/// Puts such bytes back. False, and nothing is changed, where their number is another one.
bool unpack(backend::Vectors& vectors, std::string_view bytes,
            const std::vector<backend::Vector>& to);

/// Rank 0 gets each rank's bytes by its key, where there are any; the others get nothing. They may
/// be much larger than a message between ranks: of all ranks, `at_once` bytes come at a time.
/// Collective.
ExchangeState gather_state(comm::Control& control, const std::string& key, const std::string& mine,
                           std::size_t at_once = std::size_t{64} << 20);

/// The number of steps in the state of an exchange of this name. Throws InputError without one.
std::uint64_t saved_steps(const SavedState& state, const std::string& name);
constexpr const char* steps_key = "steps";
/// A rank's part of a state.
constexpr const char* rank_prefix = "rank-";
std::string rank_key(std::size_t rank);

/// What load() returns where another number of ranks or groups saved the state: "... (of 4 ranks,
/// now 2)".
std::string of_others(std::string_view what, std::size_t saved_by, std::string_view who,
                      std::size_t now);

}  // namespace lockstep::reduce
