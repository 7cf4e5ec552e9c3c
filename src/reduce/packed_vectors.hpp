#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/backend/vectors.hpp"

namespace lockstep::reduce {

/// The bytes of some vectors, one after the other: one rank's part of an exchange's state.
std::string packed(backend::Vectors& vectors, const std::vector<backend::Vector>& values);

/// Puts such bytes back. False, and nothing is changed, where their number is another one.
bool unpack(backend::Vectors& vectors, std::string_view bytes,
            const std::vector<backend::Vector>& to);

}  // namespace lockstep::reduce
