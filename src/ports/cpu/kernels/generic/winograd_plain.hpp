#pragma once

#include "ports/cpu/kernels/winograd/winograd.hpp"

namespace lockstep::cpu {

extern const WinogradKernels winograd_plain;

}  // namespace lockstep::cpu
