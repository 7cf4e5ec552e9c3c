#include "lockstep/comm/watched_communicator.hpp"

#include <fmt/format.h>

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/comm/collected.hpp"

namespace lockstep::comm {
namespace {

const char* type_name(ElementType type) {
  switch (type) {
    case ElementType::f16:
      return "f16";
    case ElementType::bf16:
      return "bf16";
    case ElementType::i32:
      return "i32";
    case ElementType::i64:
      return "i64";
    case ElementType::i8:
      return "i8";
    case ElementType::f32:
      break;
  }
  return "f32";
}

/// A kind of collective, and what it makes of the ranks' values, if anything.
struct Verb {
  const char* name;
  std::optional<Reduction> reduction{};

  std::string text(ElementType type) const {
    if (!reduction) return name;
    return fmt::format("{}_{}_{}", name, *reduction == Reduction::sum ? "Sum" : "Max",
                       type_name(type));
  }
};

/// The network stream, which looks for ends whenever one of its events is polled.
class WatchedStream final : public device::Stream {
 public:
  WatchedStream(device::Stream& below, CollectiveObserver& observer)
      : below_(below), observer_(observer) {}

  bool watches() const { return observer_.watches(); }
  double clock_us() const { return observer_.clock_us(); }
  /// The collectives have been put into the stream below.
  void add(std::vector<WatchedCollective> calls) {
    open_.push_back({below_.record(), std::move(calls)});
  }
  /// Reports those that have ended.
  void look() {
    for (; !open_.empty() && open_.front().end->done(); open_.pop_front())
      for (WatchedCollective& one : open_.front().calls) {
        one.ended_us = clock_us();
        observer_.ended(std::move(one));
      }
  }

  std::unique_ptr<device::Event> record() override;
  std::unique_ptr<device::Event> record_newest() override;
  void wait(device::Event& event) override { below_.wait(event); }
  void synchronize() override {
    below_.synchronize();
    look();
  }

 private:
  struct Open {
    std::unique_ptr<device::Event> end;
    std::vector<WatchedCollective> calls;
  };
  device::Stream& below_;
  CollectiveObserver& observer_;
  std::deque<Open> open_;
};

class WatchedEvent final : public device::Event {
 public:
  WatchedEvent(WatchedStream& stream, std::unique_ptr<device::Event> below)
      : stream_(stream), below_(std::move(below)) {}
  bool done() override {
    const bool done = below_->done();
    stream_.look();
    return done;
  }
  double due_in_s() const override { return below_->due_in_s(); }

 private:
  WatchedStream& stream_;
  std::unique_ptr<device::Event> below_;
};

std::unique_ptr<device::Event> WatchedStream::record() {
  return std::make_unique<WatchedEvent>(*this, below_.record());
}

std::unique_ptr<device::Event> WatchedStream::record_newest() {
  return std::make_unique<WatchedEvent>(*this, below_.record_newest());
}

class WatchedCommunicator final : public Communicator {
 public:
  /// Groups that are split off share the stream.
  WatchedCommunicator(std::shared_ptr<Communicator> below, std::shared_ptr<WatchedStream> stream)
      : Communicator(below->activity), below_(std::move(below)), stream_(std::move(stream)) {}

  int rank() const override { return below_->rank(); }
  int world() const override { return below_->world(); }
  device::Stream& network() override { return *stream_; }
  void begin_step(std::uint64_t step) override { below_->begin_step(step); }
  std::unique_ptr<Communicator> split(std::optional<int> colour, int key,
                                      std::string_view name) override {
    std::shared_ptr<Communicator> group = below_->split(colour, key, name);
    if (!group) return nullptr;
    return std::make_unique<WatchedCommunicator>(std::move(group), stream_);
  }
  /// What travels there is not watched.
  std::unique_ptr<Communicator> channel(std::string_view name) override {
    return below_->channel(name);
  }
  void all_reduce(Elements data, Reduction reduction, std::string_view name,
                  device::Stream& stream) override {
    watch({"AllReduce", reduction}, data, name,
          [&] { below_->all_reduce(data, reduction, name, below(stream)); });
  }
  void reduce_scatter(Elements data, Reduction reduction, std::string_view name,
                      device::Stream& stream) override {
    watch({"ReduceScatter", reduction}, data, name,
          [&] { below_->reduce_scatter(data, reduction, name, below(stream)); });
  }
  void all_gather(Elements data, std::string_view name, device::Stream& stream) override {
    watch({"AllGather"}, data, name, [&] { below_->all_gather(data, name, below(stream)); });
  }
  void broadcast(Elements data, int root, std::string_view name, device::Stream& stream) override {
    watch({"Broadcast"}, data, name, [&] { below_->broadcast(data, root, name, below(stream)); });
  }
  void send(Elements data, int to, std::string_view name, device::Stream& stream) override {
    watch({"SendRecv"}, data, name, [&] { below_->send(data, to, name, below(stream)); });
  }
  void receive(Elements data, int from, std::string_view name, device::Stream& stream) override {
    watch({"SendRecv"}, data, name, [&] { below_->receive(data, from, name, below(stream)); });
  }
  /// What it puts into the stream is there only when it returns.
  void together(const std::function<void()>& calls) override {
    std::vector<WatchedCollective> batch = collected(batch_, [&] { below_->together(calls); });
    if (!batch.empty()) stream_->add(std::move(batch));
  }
  void repeated(std::string_view what, std::unique_ptr<device::Event> end) override {
    below_->repeated(what, std::move(end));
  }
  std::unique_ptr<WaitDeadline> make_deadline(std::string_view name,
                                              std::vector<int> awaited) override {
    return below_->make_deadline(name, std::move(awaited));
  }
  void progress() override {
    below_->progress();
    stream_->look();
  }

 private:
  /// What is not this communicator's stream is an error below.
  device::Stream& below(device::Stream& stream) {
    return &stream == stream_.get() ? below_->network() : stream;
  }
  void watch(const Verb& verb, const Elements& data, std::string_view name, const auto& call) {
    if (world() == 1 || data.count == 0 || !stream_->watches()) return call();
    WatchedCollective one{.verb = verb.text(data.type),
                          .name = std::string(name),
                          .bytes = data.bytes(),
                          .began_us = stream_->clock_us()};
    call();
    std::vector<WatchedCollective> alone;
    (batch_ ? *batch_ : alone).push_back(std::move(one));
    if (!alone.empty()) stream_->add(std::move(alone));
  }

  std::shared_ptr<Communicator> below_;
  std::shared_ptr<WatchedStream> stream_;
  std::vector<WatchedCollective>* batch_ = nullptr;  ///< of together()
};

}  // namespace

std::unique_ptr<Communicator> watch_collectives(Communicator& below, CollectiveObserver& observer) {
  // The caller owns `below`.
  return std::make_unique<WatchedCommunicator>(
      std::shared_ptr<Communicator>(std::shared_ptr<void>(), &below),
      std::make_shared<WatchedStream>(below.network(), observer));
}

}  // namespace lockstep::comm
