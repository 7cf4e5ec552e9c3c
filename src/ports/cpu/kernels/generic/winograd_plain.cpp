#include "ports/cpu/kernels/generic/winograd_plain.hpp"

#include <cstdint>
#include <utility>

namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/vector.inc"

#include "ports/cpu/kernels/winograd/winograd_tiles.inc"

#include "ports/cpu/kernels/winograd/winograd.inc"
#include "ports/cpu/kernels/winograd/winograd_forms.inc"
}  // namespace

const WinogradKernels winograd_plain = winograd_table<Four, Floats, float>();

}  // namespace lockstep::cpu
