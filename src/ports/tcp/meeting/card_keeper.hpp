#pragma once

#include <filesystem>
#include <memory>
#include <thread>

#include "lockstep/cluster/identity/rendezvous.hpp"

namespace lockstep::tcp {

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
