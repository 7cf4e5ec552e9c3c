#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/elements.hpp"
#include "lockstep/device/host_stream.hpp"

namespace lockstep::comm {

/// The stream that all collectives of a rank go through where they run on the host. Operations on
/// separate memory may overlap in time, which fills the waits for answers. Operations on the same
/// memory run one after the other.
class HostNetwork {
 public:
  using Start = std::function<std::unique_ptr<device::Pending>()>;

  explicit HostNetwork(const ActivityTracker& of_rank) : activity(of_rank) {}
  device::HostStream& stream() { return stream_; }
  /// Puts an operation into the stream. `start` is called when the earlier operations on `data`
  /// have finished: now, or when the stream advances this one, which is the earliest without
  /// `at_once`. Operations that only read `data` do not wait for each other.
  void put(Elements data, bool writes, bool at_once, Start start);
  /// What `calls` puts becomes one operation of the stream, whose parts progress together.
  void together(const std::function<void()>& calls);

  /// What an operation is called in errors: "step 12, bucket 3 of group rows". `group` is empty for
  /// the world.
  std::string phase(std::string_view name, std::string_view group) const;

  std::uint64_t step = 0;          ///< that errors name; 0 before the first one
  const ActivityTracker activity;  ///< an operation that has moved something notes that there

 private:
  class Turn;
  class Together;
  struct Use {
    const std::byte* begin;
    const std::byte* end;
    bool writes;
    const std::byte* reach = nullptr;  ///< the farthest end of this one and those before it
  };
  /// What one operation of the stream uses, with all its parts: they need not wait for each other,
  /// so an operation of many parts is one thing to look at for the others.
  struct Claim {
    std::vector<Use> uses;  ///< by address, once all of them are there
    std::size_t unfinished = 0;
  };
  bool waits(const Use& use, std::uint64_t number) const;
  static bool meets(const Claim& claim, const Use& use);

  std::map<std::uint64_t, Claim> claims_;  ///< of what has not finished, in the stream's order
  std::uint64_t next_ = 0;
  std::vector<std::unique_ptr<device::Pending>>* batch_ = nullptr;  ///< of together()
  device::HostStream stream_;  // last: its operations use the others
};

}  // namespace lockstep::comm
