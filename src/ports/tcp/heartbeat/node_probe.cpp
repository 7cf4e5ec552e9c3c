#include "ports/tcp/heartbeat/node_probe.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/liveness/links.hpp"
#include "ports/tcp/own_addresses.hpp"

namespace lockstep::comm {
namespace {

// Enough for six tries of a connection. With liveness.timeout-s = 20 a run so ends within 30 s.
constexpr double probe_s = 6.5;
constexpr std::size_t most_at_once = 64;

}  // namespace

NodeProbe::NodeProbe(int rank, int world, HandshakeServer door, std::map<int, ListenerCard> cards)
    : rank_(rank), world_(world), door_(std::move(door)), cards_(std::move(cards)) {}

void NodeProbe::begin(std::uint64_t round) {
  round_ = round;
  began_s_ = now_s();
  open_.clear();
  for (const auto& [rank, card] : cards_) open_[rank];
}

std::optional<ProbeReport> NodeProbe::poll() {
  const auto refusal = [this](const Hello& hello) {
    return hello.world == world_ && hello.job == heartbeat_purpose ? "" : "not of this world";
  };
  door_.admit(refusal, [](const Hello&, Wire) {});  // the answer was all that they wanted
  if (!round_) return std::nullopt;
  std::size_t at_once = 0;
  for (auto node = open_.begin(); node != open_.end() && at_once < most_at_once; ++at_once)
    node = advance(node->first, node->second) ? open_.erase(node) : std::next(node);
  if (!open_.empty() && now_s() - began_s_ < probe_s) return std::nullopt;
  ProbeReport report{*std::exchange(round_, std::nullopt), {}};
  for (const auto& [rank, attempt] : open_)
    if (attempt) report.not_reached.push_back(rank);  // else its turn never came
  open_.clear();
  return report;
}

/// True when that node was reached.
bool NodeProbe::advance(int rank, std::optional<ConnectAttempt>& attempt) {
  if (!attempt || attempt->failed())
    attempt.emplace(cards_.at(rank), heartbeat_purpose, rank_, world_);
  return attempt->poll().has_value();
}

void NodeProbe::add_to(std::vector<pollfd>& polled) const {
  door_.add_to(polled);
  for (const auto& [rank, attempt] : open_)
    if (attempt) attempt->add_to(polled);
}

ProbePlaces exchange_probe_places(const std::vector<std::string>& hosts, const Key& secret,
                                  Control& control) {
  const std::vector<int> first = liveness::first_ranks_of(hosts);
  if (first.size() < 2) return {};
  const bool probes = std::find(first.begin(), first.end(), control.rank()) != first.end();
  ProbePlaces places;
  ListenerCard mine;
  if (probes) {
    places.listener = listen_on(std::array<std::uint16_t, 1>{0});
    mine = {secret, places.listener.port, own_addresses()};
  }
  const auto cards = gather_records(control, mine, "start of the heartbeat");
  if (!probes) return places;
  for (const int rank : first) {
    if (rank == control.rank()) continue;
    ListenerCard card = cards[static_cast<std::size_t>(rank)];
    card.secret = secret;
    // An address that both nodes have (a container's bridge) leads back to this one.
    std::erase_if(card.addresses, [&](const std::string& address) {
      return std::find(mine.addresses.begin(), mine.addresses.end(), address) !=
             mine.addresses.end();
    });
    if (!card.addresses.empty()) places.cards[rank] = std::move(card);
  }
  return places;
}

}  // namespace lockstep::comm
