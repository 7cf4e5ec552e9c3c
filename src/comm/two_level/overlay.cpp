#include "comm/two_level/overlay.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/agreement.hpp"
#include "lockstep/comm/collected.hpp"

namespace lockstep::comm {
namespace {

bool overlap(Elements a, Elements b) {
  if (a.data == nullptr || b.data == nullptr) return true;
  const auto* a_begin = static_cast<const std::byte*>(a.data);
  const auto* b_begin = static_cast<const std::byte*>(b.data);
  return a_begin < b_begin + b.bytes() && b_begin < a_begin + a.bytes();
}

class Forwarded final : public Overlay::Operation {
 public:
  Forwarded(Overlay& overlay, Elements memory, std::function<void()> calls)
      : Operation(overlay, memory), calls_(std::move(calls)) {}
  bool advance() override {
    if (!issued_) {
      if (!has_turn() || !owns_memory()) return false;
      issue(calls_);
      issued_ = true;
    }
    return arrived();
  }

 private:
  std::function<void()> calls_;
  bool issued_ = false;
};

}  // namespace

void Overlay::progress() {
  below_.progress();
  stream_.advance();
}

void Overlay::forward(Elements memory, std::function<void()> calls) {
  stream_.put(std::make_unique<Forwarded>(*this, memory, std::move(calls)));
}

Overlay::Operation::Operation(Overlay& overlay, Elements memory)
    : overlay_(overlay), number_(overlay.put_++) {
  overlay_.uses_.push_back({number_, memory});
}

Overlay::Operation::~Operation() {
  std::erase_if(overlay_.uses_, [this](const Use& use) { return use.number == number_; });
}

bool Overlay::Operation::owns_memory() const {
  const auto mine = std::find_if(overlay_.uses_.begin(), overlay_.uses_.end(),
                                 [this](const Use& use) { return use.number == number_; });
  return std::none_of(overlay_.uses_.begin(), mine,
                      [&](const Use& earlier) { return overlap(earlier.memory, mine->memory); });
}

void Overlay::Operation::issue(const std::function<void()>& calls) {
  check(has_turn() && !arrived_, "an operation made its calls out of turn");
  calls();
  arrived_ = overlay_.below_.network().record();
  ++overlay_.issued_;
}

// split() may wait inside of the transport, so what other ranks need from this stream comes first.
std::unique_ptr<Communicator> OverlaidCommunicator::split(std::optional<int> colour, int key,
                                                          std::string_view name) {
  overlay_->stream().synchronize();
  std::shared_ptr<Communicator> group = below_->split(colour, key, name);
  if (!group) return nullptr;
  return std::make_unique<OverlaidCommunicator>(overlay_, std::move(group));
}

void OverlaidCommunicator::forward(Elements data, std::string_view name, device::Stream& stream,
                                   Verb verb) {
  if (!has_work(*this, data, name, stream)) return;
  auto call = [below = below_, data, text = std::string(name), verb = std::move(verb)] {
    verb(*below, data, text, below->network());
  };
  if (batch_) {
    batch_->push_back(std::move(call));
  } else {
    overlay_->forward(data, std::move(call));
  }
}

void OverlaidCommunicator::all_reduce(Elements data, Reduction reduction, std::string_view name,
                                      device::Stream& stream) {
  check_reducible(data, name);
  forward(data, name, stream, [reduction](Communicator& below, Elements d, auto text, auto& s) {
    below.all_reduce(d, reduction, text, s);
  });
}

void OverlaidCommunicator::reduce_scatter(Elements data, Reduction reduction, std::string_view name,
                                          device::Stream& stream) {
  check_reducible(data, name);
  chunk_size(*this, data, name);
  forward(data, name, stream, [reduction](Communicator& below, Elements d, auto text, auto& s) {
    below.reduce_scatter(d, reduction, text, s);
  });
}

void OverlaidCommunicator::all_gather(Elements data, std::string_view name,
                                      device::Stream& stream) {
  chunk_size(*this, data, name);
  forward(data, name, stream, [](Communicator& below, Elements d, auto text, auto& s) {
    below.all_gather(d, text, s);
  });
}

void OverlaidCommunicator::broadcast(Elements data, int root, std::string_view name,
                                     device::Stream& stream) {
  check_root(*this, root, name);
  forward(data, name, stream, [root](Communicator& below, Elements d, auto text, auto& s) {
    below.broadcast(d, root, text, s);
  });
}

void OverlaidCommunicator::send(Elements data, int to, std::string_view name,
                                device::Stream& stream) {
  check_peer(*this, to, name);
  forward(data, name, stream, [to](Communicator& below, Elements d, auto text, auto& s) {
    below.send(d, to, text, s);
  });
}

void OverlaidCommunicator::receive(Elements data, int from, std::string_view name,
                                   device::Stream& stream) {
  check_peer(*this, from, name);
  forward(data, name, stream, [from](Communicator& below, Elements d, auto text, auto& s) {
    below.receive(d, from, text, s);
  });
}

void OverlaidCommunicator::together(const std::function<void()>& calls) {
  std::vector<std::function<void()>> batch = collected(batch_, calls);
  if (batch.empty()) return;
  overlay_->forward({}, [below = below_, batch = std::move(batch)] {
    below->together([&batch] {
      for (const auto& call : batch) call();
    });
  });
}

}  // namespace lockstep::comm
