#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

/// How a start of a run ended. An error has the one that it leads to, from where it is thrown to
/// the run's records and `lockstep why`.
enum class Ending {
  finished,
  running,
  stopped,        ///< by a person or a key, with a checkpoint
  out_of_time,    ///< the allocation's limit
  preempted,      ///< the scheduler took the nodes away
  out_of_memory,  ///< of a device or a node
  lost_rank,      ///< a process or a node is gone
  stuck,          ///< all processes live, and some wait for one that does not move
  network,
  file_system,  ///< it does not answer, or reports errors
  disk_full,
  diverged,      ///< the loss is no number any more
  disagreement,  ///< ranks that must be equal are not
  bad_data,
  bad_checkpoint,
  superseded,  ///< a newer start has taken the run over
  killed,      ///< it left no word
  never_began,
  unknown
};

/// Whether a rank that ends so saw only that others are gone or do not move, or nothing.
constexpr bool is_an_effect(Ending ending) {
  return ending == Ending::lost_rank || ending == Ending::stuck || ending == Ending::unknown;
}

/// The one exception of the program. Thrown where something is found to be wrong; caught only in
/// main (which prints the rank and ends the world) and at the edge of a thread (which hands it to
/// the main thread).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, Ending of_run = Ending::unknown)
      : runtime_error(what), ending(of_run) {}
  const Ending ending;  ///< of a run that ends with it
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
inline void require(bool condition, std::string_view what, Ending ending = Ending::unknown) {
  if (condition) [[likely]]
    return;
  throw InputError(std::string(what), ending);
}

/// How a run ends with this exception. One that does not say tells it in the words of the system,
/// of HDF5 or of C++'s library, if at all.
Ending ending_of(const std::exception& error);
/// The same of such words.
Ending ending_in(std::string_view text);

}  // namespace lockstep
