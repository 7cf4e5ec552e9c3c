#include "comm/direct/network.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/collected.hpp"

namespace lockstep::comm {

/// An operation from its place in the stream to its end.
class HostNetwork::Turn final : public device::Pending {
 public:
  Turn(HostNetwork& network, Use use, std::uint64_t claim, Start start)
      : network_(network), use_(use), claim_(claim), start_(std::move(start)) {
    Claim& mine = network_.claims_[claim_];
    mine.uses.push_back(use_);
    ++mine.unfinished;
  }
  ~Turn() override { leave(); }

  /// Starts the operation if it need not wait; true when it has started.
  bool begin() {
    if (!operation_ && !network_.waits(use_, claim_)) operation_ = start_();
    return operation_ != nullptr;
  }

  bool advance() override {
    if (!begin() || !operation_->advance()) return false;
    leave();
    return true;
  }

 private:
  void leave() {
    if (std::exchange(left_, true)) return;
    const auto mine = network_.claims_.find(claim_);
    if (--mine->second.unfinished == 0) network_.claims_.erase(mine);
  }

  HostNetwork& network_;
  Use use_;
  std::uint64_t claim_;
  Start start_;  ///< kept, because it owns what the operation uses
  std::unique_ptr<device::Pending> operation_;
  bool left_ = false;
};

class HostNetwork::Together final : public device::Pending {
 public:
  explicit Together(std::vector<std::unique_ptr<device::Pending>> parts)
      : parts_(std::move(parts)) {}
  bool advance() override {
    std::erase_if(parts_, [](const auto& part) { return part->advance(); });
    return parts_.empty();
  }

 private:
  std::vector<std::unique_ptr<device::Pending>> parts_;
};

void HostNetwork::put(Elements data, bool writes, bool at_once, Start start) {
  const auto* begin = static_cast<const std::byte*>(data.data);
  const Use use{.begin = begin, .end = begin + data.bytes(), .writes = writes};
  auto turn = std::make_unique<Turn>(*this, use, batch_ ? next_ : next_++, std::move(start));
  if (at_once) turn->begin();
  if (batch_) {
    batch_->push_back(std::move(turn));
  } else {
    stream_.put(std::move(turn));
  }
}

void HostNetwork::together(const std::function<void()>& calls) {
  std::vector<std::unique_ptr<device::Pending>> parts = collected(batch_, calls);
  if (parts.empty()) return;
  std::vector<Use>& uses = claims_[next_++].uses;
  std::ranges::sort(uses, {}, &Use::begin);
  const std::byte* reach = nullptr;
  for (Use& use : uses) use.reach = reach = std::max(reach, use.end);
  stream_.put(std::make_unique<Together>(std::move(parts)));
}

/// Looks only at those that begin before the end of `use`, and of these, from the last one back, as
/// long as one may still end after its beginning.
bool HostNetwork::meets(const Claim& claim, const Use& use) {
  auto other = std::ranges::lower_bound(claim.uses, use.end, {}, &Use::begin);
  while (other != claim.uses.begin()) {
    --other;
    if (std::max(other->reach, other->end) <= use.begin) return false;
    if (use.begin < other->end && (other->writes || use.writes)) return true;
  }
  return false;
}

bool HostNetwork::waits(const Use& use, std::uint64_t number) const {
  return std::any_of(claims_.begin(), claims_.lower_bound(number),
                     [&](const auto& claim) { return meets(claim.second, use); });
}

std::string HostNetwork::phase(std::string_view name, std::string_view group) const {
  return fmt::format("{}{}{}{}", step > 0 ? fmt::format("step {}, ", step) : "", name,
                     group.empty() ? "" : " of group ", group);
}

}  // namespace lockstep::comm
