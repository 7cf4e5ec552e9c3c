#pragma once

#include <nccl.h>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/elements.hpp"

namespace lockstep::nccl {

/// What NCCL calls the types and reductions of collectives.
inline ncclDataType_t type_of(comm::ElementType type) {
  switch (type) {
    case comm::ElementType::f32:
      return ncclFloat32;
    case comm::ElementType::f16:
      return ncclFloat16;
    case comm::ElementType::bf16:
      return ncclBfloat16;
    case comm::ElementType::i32:
      return ncclInt32;
    case comm::ElementType::i64:
      return ncclInt64;
    case comm::ElementType::i8:
      return ncclInt8;
  }
  throw Error("a collective of a type that does not exist");
}

inline ncclRedOp_t operation_of(comm::Reduction reduction) {
  return reduction == comm::Reduction::sum ? ncclSum : ncclMax;
}

}  // namespace lockstep::nccl
