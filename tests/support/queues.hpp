#pragma once

// A third transport, to show what one has to do: the ranks are threads, and their messages are in
// queues.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/comm/transport.hpp"

namespace lockstep::test {

struct Parcel {
  const std::byte* data;  ///< the sender's, or that of the copy
  std::size_t bytes;
  std::vector<std::byte> copy{};
  std::atomic<bool> taken{false};
};

/// All messages between the ranks of a world.
struct Queues {
  using Label = std::tuple<int, int, comm::MessageTag>;  ///< from, to
  std::mutex mutex;
  std::map<Label, std::deque<std::shared_ptr<Parcel>>> parcels;
  std::atomic<std::size_t> bytes{0};  ///< that were sent
};

class QueueTransport final : public comm::Transport {
 public:
  QueueTransport(Queues& queues, int rank, bool copies)
      : queues_(queues), rank_(rank), copies_(copies) {}

  std::unique_ptr<comm::Message> send(int to, comm::MessageTag tag, const void* data,
                                      std::size_t bytes) override {
    const auto parcel = std::make_shared<Parcel>(static_cast<const std::byte*>(data), bytes);
    if (copies_) parcel->copy.assign(parcel->data, parcel->data + bytes);
    if (copies_) parcel->data = parcel->copy.data();
    leaving_.push_back(parcel);
    queues_.bytes += bytes;
    const std::scoped_lock lock(queues_.mutex);
    queues_.parcels[{rank_, to, own(tag)}].push_back(parcel);
    return std::make_unique<Queued>([=, this](auto&) { return copies_ || parcel->taken; });
  }
  std::unique_ptr<comm::Message> expect(int from, comm::MessageTag tag, void* data,
                                        std::size_t bytes) override {
    return receive({from, rank_, own(tag)}, static_cast<std::byte*>(data), bytes, nullptr);
  }
  std::unique_ptr<comm::Message> take(int from, comm::MessageTag tag, std::size_t bytes) override {
    const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    return receive({from, rank_, own(tag)}, memory->data(), bytes, memory);
  }
  bool copies() const override { return copies_; }
  std::unique_ptr<comm::Transport> make_other(comm::WaitDeadline&) override {
    auto other = std::make_unique<QueueTransport>(queues_, rank_, copies_);
    other->first_kind_ = first_kind_ + comm::message_kinds * ++others_;
    return other;
  }

 private:
  struct Queued final : comm::Message {
    explicit Queued(std::function<bool(comm::Message&)> call) : poll(std::move(call)) {}
    bool done() override { return poll(*this); }
    std::function<bool(comm::Message&)> poll;
  };
  std::unique_ptr<comm::Message> receive(Queues::Label label, std::byte* to, std::size_t bytes,
                                         std::shared_ptr<void> memory) {
    std::erase_if(leaving_, [](const auto& parcel) { return parcel->taken.load(); });
    for (const auto& other : leaving_)  // copies are elsewhere
      check(other->data + other->bytes <= to || to + bytes <= other->data, "memory in use");
    return std::make_unique<Queued>([=, this](comm::Message& message) {
      const std::scoped_lock lock(queues_.mutex);
      auto& queue = queues_.parcels[label];
      if (queue.empty()) return false;
      const auto parcel = std::move(queue.front());
      queue.pop_front();
      message.bytes = parcel->bytes;
      message.data = memory ? to : nullptr;
      std::copy_n(parcel->data, std::min(bytes, parcel->bytes), to);
      return parcel->taken = true;
    });
  }
  comm::MessageTag own(comm::MessageTag tag) const { return {first_kind_ + tag.kind, tag.number}; }
  Queues& queues_;
  const int rank_;
  const bool copies_;
  std::uint32_t first_kind_ = 0, others_ = 0;
  std::vector<std::shared_ptr<Parcel>> leaving_;
};

struct QueueDeadline final : comm::WaitDeadline {
  QueueDeadline(double seconds, std::string what, comm::Awaited whom)
      : deadline_s(seconds), phase(std::move(what)), awaited(std::move(whom)), left(seconds) {}
  void renew() override { left = Countdown(deadline_s); }
  void poll() override {
    if (left.over())
      throw Error(fmt::format("{}: {} did not arrive within {} s", phase,
                              comm::rank_list(awaited()), deadline_s));
  }
  const double deadline_s;
  const std::string phase;
  const comm::Awaited awaited;
  Countdown left;
};

/// What the ranks of a world say, each in a thread.
inline std::vector<std::string> threads_tell(
    Queues& queues, int world, bool copies,
    const std::function<std::string(comm::Communicator&)>& story, double deadline_s = 60) {
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank]() -> std::string {
      const auto communicator = comm::make_direct_communicator(
          std::make_unique<QueueTransport>(queues, rank, copies),
          [deadline_s](std::string phase, comm::Awaited awaited) {
            return std::make_unique<QueueDeadline>(deadline_s, std::move(phase),
                                                   std::move(awaited));
          },
          rank, world);
      try {
        return story(*communicator);
      } catch (const Error& error) {
        return error.what();
      }
    }));
  std::vector<std::string> told;
  for (auto& rank : ranks) told.push_back(rank.get());
  return told;
}

}  // namespace lockstep::test
