#pragma once

#include <exception>
#include <functional>

#include "app/start/launch.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::app {

/// How one process of many ends: what all ranks find is printed once, and the status is the same
/// everywhere. Open MPI's mpirun writes paragraphs when a rank ends with a status other than 0, but
/// none when MPI ends all ranks with that status.
class RankEnd {
 public:
  explicit RankEnd(Launch& launch) : launch_(launch) {}

  /// All ranks end with this status, or find the same. Rank 0 says it, and its end may end the
  /// others, which wait for that. Collective where the command has ended on all ranks. Returns the
  /// status where the launcher needs no help.
  int all_know(int status, const std::function<void()>& say = {});
  /// This rank has found an error; the others may have, or may be waiting for this one. Rank 0
  /// speaks first; the others wait for two seconds (ten before the first step under mpirun), in
  /// which a launcher may end them, and speak in its absence. Then all ranks end. Returns the
  /// status when there are no others to end.
  int one_knows(const liveness::End& end);
  /// The same with the exception's text.
  int one_knows(const std::exception& error, int status) {
    return one_knows({status, error.what(), ending_of(error)});
  }
  /// Ends this process at once, on whatever thread: it can wait for no other rank.
  [[noreturn]] static void nobody_answers(int status);

  /// This process's rank, or the best guess: 0 where that cannot be known.
  int rank() const;
  static bool under_mpirun();  ///< Open MPI's

 private:
  bool hears_rank_0(int status, const std::string& what = "") const;
  void join_mpi(int status, const std::string& last_words);

  Launch& launch_;
};

}  // namespace lockstep::app
