#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

/// The one exception of the program. Thrown where something is found to be wrong; caught only in
/// main (which prints the rank and ends the world) and at the edge of a thread (which hands it to
/// the main thread).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bad input: a file, a key or a launch that the user can fix. Printed without the place in the
/// source.
class InputError : public Error {
 public:
  using Error::Error;
};

/// Throws Error with the place in the source when `condition` does not hold: a broken promise
/// inside the program.
inline void check(bool condition, std::string_view what,
                  const std::source_location& where = std::source_location::current()) {
  if (condition) [[likely]]
    return;
  throw Error(std::string(what) + " [" + where.file_name() + ":" + std::to_string(where.line()) +
              "]");
}

/// Throws InputError when `condition` does not hold. `what` names the file, key or rank and says
/// what to do.
inline void require(bool condition, std::string_view what) {
  if (condition) [[likely]]
    return;
  throw InputError(std::string(what));
}

}  // namespace lockstep
