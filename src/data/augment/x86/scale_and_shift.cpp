#include "data/augment/scale_and_shift.hpp"

#define VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))

#include "data/augment/scale_and_shift.inc"
