#include "comm/combine.hpp"

#include <cstdint>

#include "lockstep/base/error.hpp"
#include "lockstep/base/half.hpp"

// Each loop is compiled for several instruction sets.
#define VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))

#include "comm/combine.inc"
