#pragma once

#include <filesystem>
#include <string>

/// The command that a user gave for the end of a training (the key `notify`). A process has one,
/// because a training may end anywhere: in its loop, before it, or in the heartbeat's thread.
/// **Thread safety:** any thread.
namespace lockstep::train {

/// From now on the end is told by this command of the shell. Call it on rank 0 alone; nothing
/// happens without a command.
void arm_notice(const std::string& command);
/// What the command is told; the last call of each counts.
void note_run(const std::filesystem::path& folder);
void note_end(const std::string& status, const std::string& reason);

/// Runs the command, once in a process: what was not noted is told as given here. The command is
/// ended after `notice_limit_s`, also when this process no longer lives. Waits for it at most
/// `patience_s`. One warning says where it failed; this throws nothing.
void give_notice(double patience_s, const std::string& status, const std::string& reason);

inline constexpr double notice_limit_s = 10;
/// Where other ranks may end this process soon.
inline constexpr double short_notice_s = 1;

}  // namespace lockstep::train
