#pragma once

// The post-mortem of a job: a JSON file in the run's directory that says why the job ended, and
// what each rank did last. Rank 0 writes post-mortem.json. A rank that misses rank 0 writes its
// own, post-mortem-rankN.json.

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/liveness/roster.hpp"

namespace lockstep::liveness {

/// Why a job ends.
struct Cause {
  std::string reason;
  Ending ending = Ending::unknown;       ///< of the run
  std::vector<int> missing{};            ///< ranks
  std::vector<std::string> leave_out{};  ///< nodes without which a new start should do
};

/// The text that rank `told_by` writes.
std::string post_mortem(const Roster& roster, const Cause& cause, int told_by);

/// Writes it; on a full disk, rank 0's into the reserved room. Throws Error naming the file.
void write_post_mortem(const std::filesystem::path& directory, int told_by,
                       const std::string& text);

/// Reserves room for rank 0's there, as a file that must not be removed before the run is finished.
void reserve_post_mortem(const std::filesystem::path& directory, int world);
void release_post_mortem(const std::filesystem::path& directory);

}  // namespace lockstep::liveness
