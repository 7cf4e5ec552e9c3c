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
  Turn(HostNetwork& network, Use use, Start start)
      : network_(network), use_(use), start_(std::move(start)) {
    network_.uses_.push_back(use_);
  }
  ~Turn() override { leave(); }

  /// Starts the operation if it need not wait; true when it has started.
  bool begin() {
    if (!operation_ && !network_.waits(use_)) operation_ = start_();
    return operation_ != nullptr;
  }

  bool advance() override {
    if (!begin() || !operation_->advance()) return false;
    leave();
    return true;
  }

 private:
  void leave() {
    std::erase_if(network_.uses_, [this](const Use& use) { return use.number == use_.number; });
  }

  HostNetwork& network_;
  Use use_;
  Start start_;  ///< kept, because it owns what the operation uses
  std::unique_ptr<device::Pending> operation_;
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
  auto turn = std::make_unique<Turn>(*this, Use{begin, begin + data.bytes(), writes, next_++},
                                     std::move(start));
  if (at_once) turn->begin();
  if (batch_) {
    batch_->push_back(std::move(turn));
  } else {
    stream_.put(std::move(turn));
  }
}

void HostNetwork::together(const std::function<void()>& calls) {
  std::vector<std::unique_ptr<device::Pending>> parts = collected(batch_, calls);
  if (!parts.empty()) stream_.put(std::make_unique<Together>(std::move(parts)));
}

bool HostNetwork::waits(const Use& use) const {
  return std::any_of(uses_.begin(), uses_.end(), [&](const Use& other) {
    return other.number < use.number && (other.writes || use.writes) && other.begin < use.end &&
           use.begin < other.end;
  });
}

std::string HostNetwork::phase(std::string_view name, std::string_view group) const {
  return fmt::format("{}{}{}{}", step > 0 ? fmt::format("step {}, ", step) : "", name,
                     group.empty() ? "" : " of group ", group);
}

}  // namespace lockstep::comm
