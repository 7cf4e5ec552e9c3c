#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/identify.hpp"

namespace lockstep::cluster {

/// Where the ranks of one Slurm step meet when MPI does not connect them: rank 0 listens, and
/// leaves word in a file that all nodes see. The file also holds the secret by which the ranks know
/// each other: 128 random bits, drawn for this meeting, readable by this user alone. It is as safe
/// as the user's home directory is; a key made from the job's public numbers would be guessable,
/// and munge is not on every cluster. Who has it may join; what is said afterwards is neither
/// encrypted nor signed, as MPI's and NCCL's own traffic is not.
struct MeetingPlace {
  std::string job;  ///< "CLUSTER/JOB.STEP/RESTART": a peer of anything else is refused
  std::filesystem::path file;
  std::vector<std::uint16_t> ports;  ///< from the job's and step's numbers; the first free one
  std::string node;                  ///< this rank's node, in Slurm's words
  std::vector<std::string> nodes;    ///< the step's, and how many ranks each has; both may be
  std::vector<int> ranks_on_node;    ///< empty where Slurm does not say (heterogeneous steps)
};

/// The place for this process's step; nothing outside a Slurm step. The file lies in
/// $LOCKSTEP_RENDEZVOUS_DIR, else in ~/.lockstep. Throws InputError where neither is known.
std::optional<MeetingPlace> meeting_place(const EnvLookup& env, const RankInfo& info);

/// What rank 0 leaves in the file.
struct MeetingCard {
  std::array<std::uint8_t, 16> secret{};
  std::vector<std::string> hosts;  ///< names under which rank 0's node may be found
  std::uint16_t port = 0;
};

/// A card with a new secret, from the kernel's random numbers.
MeetingCard new_card(std::vector<std::string> hosts, std::uint16_t port);

/// Puts the card into `file`, mode 0600 in a directory of mode 0700, whole or not at all; what an
/// earlier start left there is replaced. Throws InputError naming the path and the reason.
void leave_card(const std::filesystem::path& file, const MeetingCard& card);

/// The card, or nothing while there is none. Throws InputError when the file belongs to another
/// user or others may read it: then it is no secret.
std::optional<MeetingCard> read_card(const std::filesystem::path& file);

}  // namespace lockstep::cluster
