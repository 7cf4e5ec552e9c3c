#pragma once

// Why claims need no clock. Machines disagree about the time, and some file systems take a file's
// time from the machine that writes. So a time is only a value that changes: an observer compares a
// claim's stamps with each other, and measures by its own steady clock how long they stay the same.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/files/file_stamp.hpp"

namespace lockstep::serve {

struct ClaimSpec {
  std::filesystem::path folder;  ///< of the claims; made if it is not there
  double beat_s = 5;             ///< between two heartbeats
  /// A claim without a heartbeat for this long may be taken over.
  double stale_s = 60;
};

/// Shares numbered pieces of work among processes that know only a folder: on one machine or many,
/// started at any time, without a coordinator. A claim is a file PIECE.GENERATION, made
/// exclusively; the newest generation of a piece counts. Its holder gives it a new time every
/// `beat_s`. A process that finds it without life for long makes the next generation; of several
/// that try, one succeeds.
///
/// The claim of a process that has ended on this machine is without life at once.
///
/// A process that was stopped may still work on a piece that another one has taken over. So the
/// result of a piece must be published without replacing another (PendingFile::publish()).
///
/// **Thread safety:** one thread uses it; its own thread makes the heartbeats.
class Claims {
 public:
  /// Throws as fail_by_system(), naming the folder.
  explicit Claims(const ClaimSpec& spec);
  ~Claims();  ///< gives up what is held
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  /// The first of these pieces that no one holds, or whose holder shows no life; it is held from
  /// now on. Empty when others hold them all. Throws as fail_by_system(), naming the claim's
  /// file.
  std::optional<std::size_t> take_any(const std::vector<std::size_t>& pieces);
  void release(std::size_t piece);
  std::size_t workers() const;  ///< processes that have claims, with this one if it has any

 private:
  struct Newest {
    std::uint64_t generation = 0;
    std::string file;
  };
  struct Seen {
    FileStamp stamp;
    double unchanged_s = 0, looked_s = 0;
  };
  std::map<std::size_t, Newest> newest_claims() const;
  bool make(std::size_t piece, std::uint64_t generation);
  bool shows_life(const std::string& file);
  void beat();

  ClaimSpec spec_;
  std::string holder_;                ///< this process, as a claim says it
  std::map<std::string, Seen> seen_;  ///< others' claims, by file name
  mutable std::mutex mutex_;          ///< guards what follows
  std::condition_variable ending_;
  std::map<std::size_t, std::string> held_;  ///< the files by piece
  bool ended_ = false;
  std::thread heart_;
};

}  // namespace lockstep::serve
