#pragma once

#include "lockstep/base/error.hpp"

namespace lockstep::data {

/// One row is broken: its CRC-32C, its JPEG or its size is wrong. Other rows may be whole. A file
/// that cannot be read at all is a plain InputError.
class BadRow : public InputError {
 public:
  explicit BadRow(const std::string& what) : InputError(what, Ending::bad_data) {}
};

}  // namespace lockstep::data
