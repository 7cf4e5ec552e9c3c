#include "comm/combine.hpp"

#include <cstdint>

#include "lockstep/base/error.hpp"
#include "lockstep/base/half.hpp"

#define VECTORIZED

#include "comm/combine.inc"
