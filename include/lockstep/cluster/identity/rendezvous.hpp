#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/owned.hpp"
#include "lockstep/cluster/identity/identify.hpp"

namespace lockstep::cluster {

using MeetingSecret = std::array<std::uint8_t, 16>;
/// A secret as 32 hexadecimal digits; nothing where they are not.
std::optional<MeetingSecret> parse_secret(std::string_view digits);

/// Where rank 0 listens, as all ranks are told, and the secret that they share: ranks of
/// Kubernetes, of a loop of ssh, of a launcher without MPI. The secret is as safe as its file.
struct MeetingAddress {
  std::string host;  ///< looked up at each try: a name may appear late, and change
  std::uint16_t port = 0;
  MeetingSecret token{};
  std::filesystem::path token_file;
  std::string note;  ///< what is to know about the file; mostly empty
};

/// Where the ranks of one Slurm step meet when MPI does not connect them: rank 0 listens, and
/// writes its address into a file that all nodes see.
///
/// The file also holds a secret by which the ranks recognise each other: 128 random bits, drawn for
/// this meeting, readable only by this user. It is as safe as the user's home directory. (A key
/// made from the job's public numbers could be guessed, and not every cluster has munge.) Anyone
/// who has it may join. Later messages are neither encrypted nor signed, like those of MPI and
/// NCCL.
struct MeetingPlace {
  std::string job;  ///< "CLUSTER/JOB.STEP/RESTART": peers of any other job are turned away
  std::filesystem::path file;
  std::vector<std::uint16_t> ports;  ///< from the job's and step's numbers; the first free one
  std::string node;                  ///< this rank's node, as Slurm names it
  std::vector<std::string> nodes;    ///< the step's, and how many ranks each has; both are empty
  std::vector<int> ranks_on_node;    ///< when Slurm does not say (heterogeneous steps)
  std::optional<MeetingAddress> address;  ///< in place of the file
};

/// Whether the ranks of this launch meet by an address, without MPI: LOCKSTEP_MEET is set, or only
/// variables declare the world, which nothing else would join.
bool meets_by_address(const EnvLookup& env, const RankInfo& info);
/// That place. Throws InputError naming a variable that is missing or wrong, or the token's file.
MeetingPlace address_place(const EnvLookup& env, const RankInfo& info);
/// What to know about variables that Kubernetes sets for a service called lockstep. Mostly empty.
std::string describe_service_links(const EnvLookup& env);

/// The place for this launch: by an address, or for a Slurm step; else nothing. The step's file is
/// in $LOCKSTEP_RENDEZVOUS_DIR, else in ~/.lockstep. Throws LaunchError when neither is known, and
/// as address_place().
std::optional<MeetingPlace> meeting_place(const EnvLookup& env, const RankInfo& info);

/// What rank 0 writes into the file.
struct MeetingCard {
  MeetingSecret secret{};
  std::vector<std::string> hosts;  ///< names under which rank 0's node may be found
  std::uint16_t port = 0;
};

/// Writes the card into `file`, mode 0600 in a directory of mode 0700, whole or not at all. It
/// replaces the card of an earlier start. Keep the descriptor, which holds a lock, while the card
/// is of use. First it removes cards in that directory that are older than a minute and that no one
/// holds: their starts were killed. Throws InputError naming the path and the reason.
Descriptor leave_card(const std::filesystem::path& file, const MeetingCard& card);

/// Throws LaunchError when this rank could not leave a card in `file` either, because its directory
/// cannot be made or written: then rank 0, which reports that, does not come.
void check_folder(const std::filesystem::path& file);

/// Removes the file if it still holds this card: for a rank whose rank 0 has gone.
void remove_card(const std::filesystem::path& file, const MeetingSecret& secret);

/// The card, or nothing while there is no file. Throws InputError when the file belongs to another
/// user or others may read it: then it is not a secret.
std::optional<MeetingCard> read_card(const std::filesystem::path& file);

}  // namespace lockstep::cluster
