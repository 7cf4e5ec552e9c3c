#pragma once

#include <string>

#include "lockstep/backend/vectors.hpp"

namespace lockstep::test {

/// Products of matrices of many shapes and forms with 1 to 8 vectors, compared with double
/// precision; numbers between a matrix's own are left alone. Returns what is wrong, or nothing.
std::string fault_of_products(backend::Vectors& vectors);

/// Orthogonal vectors of length 1 that span what they spanned, also where some depend on others.
std::string fault_of_orthogonal_vectors(backend::Vectors& vectors);

}  // namespace lockstep::test
