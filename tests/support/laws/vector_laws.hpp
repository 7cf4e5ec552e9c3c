#pragma once

#include <string>

#include "lockstep/backend/vectors.hpp"

namespace lockstep::test {

/// Laws that the vectors of every backend that computes keep. Each function returns what is wrong,
/// or nothing.

/// Every format becomes every other one: rounded to the nearest, ties to even; infinities and NaN
/// stay; 8-bit values are at most half a scale away.
std::string fault_of_casts(backend::Vectors& vectors);

/// Sums, products, the largest value and the selection of large ones, in every format.
std::string fault_of_arithmetic(backend::Vectors& vectors);

/// New memory is zero; wrong vectors are errors that begin with the verb.
std::string fault_of_vectors(backend::Vectors& vectors);

}  // namespace lockstep::test
