#pragma once

// Why claims need no clock and no lock. Machines disagree about the time, and some file systems
// take a file's time from the machine that writes. So a time is only a value that changes: an
// observer compares a claim's stamps with each other, and measures by its own steady clock how long
// they stay the same. Locks are missing on some file systems, and on others known to one node only.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/files/files.hpp"

namespace lockstep {

struct WorkFolderSpec {
  std::filesystem::path claims;  ///< the folder of the claims; made if it is not there
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
/// result of a piece must be published without replacing another (PendingFile::publish()), or the
/// holder asks is_overtaken().
///
/// **Thread safety:** one thread uses it; its own thread makes the heartbeats.
class WorkFolder {
 public:
  /// Throws as fail_by_system(), naming the folder.
  explicit WorkFolder(const WorkFolderSpec& spec);
  ~WorkFolder();  ///< gives up what is held
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  /// The first of these pieces that no one holds, or whose holder shows no life; it is held from
  /// now on. Empty when others hold them all. Throws as fail_by_system(), naming the claim's
  /// file.
  std::optional<std::size_t> take_any(const std::vector<std::size_t>& pieces);
  /// Of the last take_any(), which found none: each of its pieces had a holder whose heartbeat was
  /// seen and is not late.
  bool holders_live() const { return holders_live_; }
  void release(std::size_t piece);

  /// Calls work(piece) for what no other process has done, until nothing is `left`. Waits for what
  /// others hold. Throws as take_any(), and what its arguments throw.
  void do_all(const std::function<std::vector<std::size_t>()>& left,
              const std::function<void(std::size_t)>& work);

  /// Takes one piece, which is never taken from a process that may live: false if it runs on this
  /// machine, or has a heartbeat. Waits until it knows. Throws as take_any().
  bool hold(std::size_t piece);
  /// Another process has taken over this piece, which is held.
  bool is_overtaken(std::size_t piece) const;

  std::size_t workers() const;  ///< processes that have claims, with this one if it has any

 private:
  using Generations = std::map<std::size_t, std::uint64_t>;  ///< by piece
  struct Seen {
    FileStamp stamp;
    double unchanged_s = 0, looked_s = 0;
    bool beats = false;
  };
  std::filesystem::path file_of(std::size_t piece, std::uint64_t generation) const;
  Generations newest_claims() const;
  bool make(std::size_t piece, std::uint64_t generation);
  bool beats(std::size_t piece, std::uint64_t generation) const;
  bool shows_life(std::size_t piece, std::uint64_t generation);
  void beat();

  WorkFolderSpec spec_;
  std::string holder_;  ///< this process, as a claim says it
  std::map<std::pair<std::size_t, std::uint64_t>, Seen> seen_;  ///< others' claims
  bool holders_live_ = false;
  mutable std::mutex mutex_;  ///< guards what follows
  std::condition_variable ending_;
  Generations held_;
  bool ended_ = false;
  std::thread heart_;
};

}  // namespace lockstep
