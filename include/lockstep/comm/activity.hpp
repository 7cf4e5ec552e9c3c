#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep::comm {

/// What a rank's main thread is at.
enum class Phase : std::uint8_t {
  start_up,
  data,
  forward,
  backward,
  reduction,
  update,
  end_of_step,
  audit,
  checkpoint,
  evaluation,
  ending
};
const char* to_string(Phase phase);

/// Where a rank stands, as the others are told.
struct Activity {
  std::uint64_t step = 0;  ///< under way, from 1; 0 before the first
  Phase phase = Phase::start_up;
  std::uint32_t bucket = 0;     ///< of a reduction
  std::uint64_t bytes = 0;      ///< of that bucket
  bool waiting = false;         ///< for other ranks
  std::uint64_t movements = 0;  ///< since the start; when it stands still, so does the rank
};

/// "step 12, reduction of bucket 3 (1.0 MB)"
std::string describe(const Activity& activity);

/// What this process is doing, for its heartbeat to tell the other ranks. One for each process, as
/// the log is: whoever works says so here, which costs a few relaxed stores. The main thread alone
/// writes.
namespace activity {

void begin_step(std::uint64_t step);
void enter(Phase phase);
void moved();  ///< something came on, within a phase
Activity now();

/// A step on a device that runs behind the host: as long as the host is in a step, now() tells the
/// phase that the device has reached, which is what code() made of it, and a device that has not
/// come to the step's end of backward waits for nobody. The place must live until another one, or
/// nullptr, is followed.
void follow(const volatile std::uint64_t* reached);
std::uint64_t code(Phase phase);  ///< of the step under way; grows with both

/// While it lives, the rank waits for others.
class Waiting {
 public:
  Waiting();
  Waiting(std::size_t bucket, std::size_t bytes);  ///< in a reduction
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Phase before_;
};

/// Where rank 0's post-mortem has room kept for it, in this directory: for a disk that is full.
std::filesystem::path post_mortem_room(const std::filesystem::path& directory);
/// As much as the post-mortem of so many ranks takes.
std::size_t post_mortem_bytes(int world);

/// Where a post-mortem is to be written; empty as long as there is no such place. Any thread.
void set_directory(const std::filesystem::path& directory);
std::filesystem::path directory();

}  // namespace activity
}  // namespace lockstep::comm
