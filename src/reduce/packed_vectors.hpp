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

/// The number of steps in the state of an exchange of this name. Throws InputError without one.
std::uint64_t saved_steps(const ExchangeState& state, const std::string& name);
constexpr const char* steps_key = "steps";

/// Throws InputError that says what to do unless as many ranks saved the state as there are.
void require_same_ranks(std::size_t saved_by, std::size_t world, const std::string& name);

}  // namespace lockstep::reduce
