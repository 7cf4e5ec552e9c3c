#include "lockstep/comm/worlds/link_probe.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"

namespace lockstep::comm {
namespace {

constexpr int most_round_trips = 20, least_round_trips = 2;
constexpr double long_trip_s = 0.05;
constexpr std::size_t first_bytes = std::size_t{64} << 10, first_bytes_of_late = 4096,
                      chunk_bytes = std::size_t{1} << 20;
constexpr int turns = 5;          // the best one counts
constexpr double most_times = 4;  // no more turns after this many times the requested seconds

/// The rank with the lower number leads: it measures, and decides how much is sent.
class VerbLinkProbe final : public LinkProbe {
 public:
  explicit VerbLinkProbe(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)), rank_(communicator_->rank()) {}

  std::optional<LinkRate> measure(int partner, double seconds, bool has_time) override {
    phase_ = fmt::format("measuring the network between rank {} and rank {}",
                         std::min(rank_, partner), std::max(rank_, partner));
    partner_ = partner;
    out_.assign(1, has_time ? 1 : 0);
    exchange(sizeof(std::int32_t));  // now the other rank is here, and a connection exists
    if (!has_time || in_[0] == 0) return std::nullopt;
    const double began_s = now_s();
    LinkRate rate{0, best_round_trip(began_s + seconds / 2)};
    // The chunks to send, and the bytes of each. The first turn finds them, and may be the only
    // one.
    const std::size_t first = rate.round_trip_s > long_trip_s ? first_bytes_of_late : first_bytes;
    std::array<double, 2> next{1, static_cast<double>(first)};
    tell(next);
    for (int turn = 0; turn <= turns && next[0] > 0; ++turn) {
      const double found = send(next);
      if (turn != 1) rate.bytes_per_s = std::max(rate.bytes_per_s, found);
      if (turn == 1) rate.bytes_per_s = found;
      // A part of a chunk when even one would take too long.
      const double left = found * seconds / turns;
      next = {std::clamp(left / static_cast<double>(chunk_bytes), 1.0, 1e4),
              std::clamp(left, 1024.0, static_cast<double>(chunk_bytes))};
      if (now_s() - began_s > most_times * seconds) next = {0, 0};
      tell(next);
    }
    std::array<double, 2> result{rate.bytes_per_s, rate.round_trip_s};
    tell(result);
    return LinkRate{result[0], result[1]};
  }

 private:
  bool leads() const { return rank_ < partner_; }

  /// Bytes per second, in each direction.
  double send(const std::array<double, 2>& chunks_of_bytes) {
    const auto chunks = static_cast<std::size_t>(chunks_of_bytes[0]);
    const auto bytes = static_cast<std::size_t>(chunks_of_bytes[1]);
    const double began_s = now_s();
    for (std::size_t i = 0; i < chunks; ++i) exchange(bytes);
    return static_cast<double>(chunks * bytes) / (now_s() - began_s);
  }

  /// With each round trip the leader says whether another one follows.
  double best_round_trip(double until_s) {
    double best = 1e9;
    std::int32_t another = 1;
    for (int i = 1; another != 0; ++i) {
      if (leads()) another = i < least_round_trips || (i < most_round_trips && now_s() < until_s);
      best = std::min(best, ping_pong(another));
    }
    return best;
  }

  /// Both ways at once.
  void exchange(std::size_t bytes) {
    const std::size_t words = bytes / sizeof(std::int32_t);
    out_.resize(std::max(out_.size(), words));
    in_.resize(std::max(in_.size(), words));
    device::Stream& network = communicator_->network();
    communicator_->together([&] {
      communicator_->send(elements(out_.data(), words), partner_, phase_, network);
      communicator_->receive(elements(in_.data(), words), partner_, phase_, network);
    });
    network.synchronize();
  }

  void one_way(bool sends, const Elements& data) {
    device::Stream& network = communicator_->network();
    if (sends)
      communicator_->send(data, partner_, phase_, network);
    else
      communicator_->receive(data, partner_, phase_, network);
    network.synchronize();
  }

  double ping_pong(std::int32_t& word) {
    const double began_s = now_s();
    one_way(leads(), elements(&word, 1));
    one_way(!leads(), elements(&word, 1));
    return now_s() - began_s;
  }

  void tell(std::array<double, 2>& values) {
    one_way(leads(), {values.data(), sizeof values / sizeof(std::int64_t), ElementType::i64});
  }

  std::unique_ptr<Communicator> communicator_;
  int rank_ = 0, partner_ = 0;
  std::string phase_;
  std::vector<std::int32_t> out_, in_;
};

}  // namespace

std::unique_ptr<LinkProbe> make_link_probe(std::unique_ptr<Communicator> communicator) {
  return std::make_unique<VerbLinkProbe>(std::move(communicator));
}

}  // namespace lockstep::comm
