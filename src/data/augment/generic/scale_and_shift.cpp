#include "data/augment/scale_and_shift.hpp"

#define VECTORIZED

#include "data/augment/scale_and_shift.inc"
