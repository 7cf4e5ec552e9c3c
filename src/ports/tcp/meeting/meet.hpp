#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/cluster/identity/rendezvous.hpp"
#include "lockstep/comm/worlds/tcp_control.hpp"
#include "ports/tcp/wire.hpp"

namespace lockstep::tcp {

/// A rank that has been let in.
struct Peer {
  Wire wire;
  std::string node;
  Key secret{};  ///< of the meeting; only of rank 0
};

/// The largest message between ranks that have been let in; a larger one is an error.
constexpr std::size_t message_limit = std::size_t{1} << 28;

/// The first byte of rank 0's answer to a meeting's parts. The result follows, or the reason why
/// there is no result.
constexpr char agreed = 'y', refused = 'n';

/// How rank 0's refusal begins when it ends.
constexpr std::string_view ended = "rank 0 has ended: ";

/// What a rank says when it has heard that it was let in. Until then it may have given up.
constexpr std::string_view confirmation;

/// Throws Error when the meeting was cancelled.
void check_not_cancelled(const comm::MeetingSpec& spec);

/// On rank 0: waits for all other ranks; returns them by rank ([0] stays empty).
std::vector<Peer> accept_all_ranks(const cluster::MeetingPlace& place,
                                   const cluster::RankInfo& self, const comm::MeetingSpec& spec);

/// On the other ranks: connects to rank 0.
Peer join_rank_0(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                 const comm::MeetingSpec& spec);

/// Keeps rank 0's card in its place while the ranks meet. A file system may take many seconds for
/// one call, and the ranks that have read the card must not wait for that: a separate thread makes
/// all the calls.
/// **Thread safety:** the owner's thread calls the methods; the state is guarded by its mutex.
class CardKeeper {
 public:
  CardKeeper(const std::filesystem::path& file, const cluster::MeetingCard& card);
  /// Removes the card, which would mislead a later start. Where the file system hangs, it does not
  /// wait for that, and the thread ends later.
  ~CardKeeper();
  CardKeeper(const CardKeeper&) = delete;
  CardKeeper& operator=(const CardKeeper&) = delete;

  /// Throws InputError when the card could not be left. That it cannot be replaced later, when
  /// another start has removed it, is no error: it is tried again.
  void check_left() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace lockstep::tcp
