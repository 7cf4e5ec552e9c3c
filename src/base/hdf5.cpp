#include "lockstep/base/hdf5.hpp"

#include <hdf5.h>

namespace lockstep {

std::string hdf5_cause() {
  std::string text;
  // The innermost record of the error stack is the cause; the others say who called whom.
  const auto keep_innermost = [](unsigned depth, const H5E_error2_t* record, void* to) -> herr_t {
    if (depth == 0 && record->desc != nullptr) *static_cast<std::string*>(to) = record->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &text);
  return text;
}

}  // namespace lockstep
