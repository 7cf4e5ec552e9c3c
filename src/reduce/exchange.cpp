#include "lockstep/reduce/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "lockstep/base/error.hpp"
#include "reduce/apart/gossip.hpp"
#include "reduce/apart/local.hpp"
#include "reduce/bucket_exchange.hpp"
#include "reduce/narrow.hpp"
#include "reduce/power_sgd.hpp"
#include "reduce/shard_exchange.hpp"

namespace lockstep::reduce {

void Exchange::keep() { throw Error("this exchange adds no shards"); }

SavedState::SavedState(const ExchangeState& texts, const ExchangeState& parts)
    : read_([&texts](const std::string& name) { return texts.at(name); }),
      open_([&parts](const std::string& name) -> Next {
        return [left = std::string_view(parts.at(name))](std::span<std::byte> to) mutable {
          std::ranges::copy(std::as_bytes(std::span(left.substr(0, to.size()))), to.begin());
          left.remove_prefix(to.size());
        };
      }) {
  for (const auto& [name, bytes] : texts) texts_.push_back(name);
  for (const auto& [name, bytes] : parts) parts_.push_back({name, bytes.size()});
}

SavedState::SavedState(const ExchangeState& texts) : SavedState(texts, texts) { parts_.clear(); }

std::vector<std::string> SavedState::names() const {
  std::vector<std::string> all = texts_;
  for (const StatePart& part : parts_) all.push_back(part.name);
  return all;
}

std::size_t SavedState::texts(std::string_view prefix) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(texts_, [=](const auto& name) { return name.starts_with(prefix); }));
}

std::size_t SavedState::parts(std::string_view prefix) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      parts_, [=](const auto& part) { return part.name.starts_with(prefix); }));
}

std::optional<std::string> SavedState::find(const std::string& name) const {
  if (std::ranges::find(texts_, name) == texts_.end()) return std::nullopt;
  return read_(name);
}

std::optional<SavedState::Next> SavedState::open(const std::string& part, std::size_t bytes) const {
  const auto found = std::ranges::find(parts_, part, &StatePart::name);
  if (found == parts_.end() || found->bytes != bytes) return std::nullopt;
  return open_(part);
}

std::string load_state(Exchange& exchange, const std::string& saved_by, const SavedState& state,
                       const std::string& origin, std::uint64_t step) {
  const std::string exact = choice_name(ExchangeKind::exact), now = exchange.name();
  if (saved_by != now && (saved_by == exact || now == exact)) {
    exchange.begin_at(step);
    return fmt::format("exchange ({}, now {}), with which all ranks begin at their mean", saved_by,
                       now);
  }
  require(saved_by == now,
          fmt::format("{} was written with the exchange '{}', but this run has '{}': keep the "
                      "exchange of the run (comm.wire, comm.power-sgd, sync.every, sync.gossip)",
                      origin, saved_by, now));
  try {
    return exchange.load(state);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", origin, error.what()));
  }
}

namespace {

/// What the bytes of a saved state depend on.
struct SavedSizes {
  std::size_t numbers = 0;
  std::size_t trained = 2;  ///< vectors that steps change: weights, momentum, and so on
  bool outer = false;
  std::size_t late = 0;  ///< gossip's
  std::size_t floats() const { return numbers * sizeof(float); }
};

template <class Kind>
std::unique_ptr<Exchange> make(ExchangeSpec spec, const ExchangeParts& parts) {
  return std::make_unique<Kind>(std::move(spec), parts);
}
std::unique_ptr<Exchange> make_exact(ExchangeSpec spec, const ExchangeParts& parts) {
  if (spec.shards > 0) return make<ShardExchange>(std::move(spec), parts);
  return std::make_unique<ExactExchange>(std::move(spec), parts.communicator,
                                         parts.backend.device().compute(),
                                         parts.parameters.device_pointer(backend::Part::gradients));
}

/// All that is said of a kind in one place.
struct Kind {
  ExchangeKind kind;
  std::unique_ptr<Exchange> (*make)(ExchangeSpec spec, const ExchangeParts& parts);
  std::size_t (*bytes)(const ExchangeSize& of);
  SavedBytes (*saved)(const SavedSizes& of);
  double wire_share;               ///< 0: the bytes that travel are no share of the gradients'
  const char* no_share = nullptr;  ///< why
};
constexpr auto bytes_of_exact = [](const ExchangeSize& of) {
  const std::size_t bucket = std::min(of.numbers, of.bucket_bytes / sizeof(float));
  return of.shards == 0 ? 0 : shard_bytes(of.numbers, bucket, of.shards, of.world);
};
constexpr auto bytes_of_halves = [](const ExchangeSize& of) { return half_bytes(of.numbers); };
constexpr auto none_saved = [](const SavedSizes&) { return SavedBytes{}; };
constexpr Kind kinds[] = {
    {ExchangeKind::exact, make_exact, bytes_of_exact, none_saved, 1},
    {ExchangeKind::bf16, make<HalfExchange>, bytes_of_halves, none_saved, 0.5},
    {ExchangeKind::fp16, make<HalfExchange>, bytes_of_halves, none_saved, 0.5},
    {ExchangeKind::int8, make<Int8Exchange>,
     [](const ExchangeSize& of) { return int8_bytes(of.numbers, of.world); },
     [](const SavedSizes& of) {
       return SavedBytes{.each = half_bytes(of.numbers), .common = half_bytes(of.numbers)};
     },
     0.25 + 1.0 / static_cast<double>(backend::arithmetic::scale_block)},
    {ExchangeKind::power_sgd, make<PowerSgdExchange>,
     [](const ExchangeSize& of) { return power_sgd_bytes(of.numbers); },
     [](const SavedSizes& of) { return SavedBytes{.each = of.floats(), .common = of.floats()}; }, 0,
     "what travels by PowerSGD depends on the network"},
    {ExchangeKind::local, make<LocalExchange>,
     [](const ExchangeSize& of) { return local_bytes(of.numbers, of.second_moments); },
     [](const SavedSizes& of) {
       return SavedBytes{.each = of.trained * of.floats(),
                         .common = (of.outer ? 2 : 0) * of.floats()};
     },
     1},
    {ExchangeKind::gossip, make<GossipExchange>,
     [](const ExchangeSize& of) {
       return gossip_bytes(of.numbers, of.second_moments, of.gossip_late);
     },
     [](const SavedSizes& of) { return SavedBytes{.each = (of.trained + of.late) * of.floats()}; },
     0, "gossip sums nothing: all weights travel, once in each step"}};

const Kind& facts_of(ExchangeKind kind) {
  const auto* found = std::ranges::find(kinds, kind, &Kind::kind);
  check(found != std::end(kinds), "an exchange without a row in the table of kinds");
  return *found;
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(ExchangeSpec spec, const ExchangeParts& parts) {
  const Kind& kind = facts_of(spec.kind);
  return kind.make(std::move(spec), parts);
}

std::size_t exchange_bytes(ExchangeKind kind, const ExchangeSize& of) {
  return facts_of(kind).bytes(of);
}

SavedBytes saved_bytes(ExchangeKind kind, std::size_t numbers, bool average, bool second_moments,
                       const LocalSpec& local, const GossipSpec& gossip) {
  return facts_of(kind).saved({.numbers = numbers,
                               .trained = 2U + (average ? 1 : 0) + (second_moments ? 1 : 0),
                               .outer = local.outer_momentum > 0,
                               .late = gossip.late});
}

double wire_share(ExchangeKind kind) {
  const Kind& facts = facts_of(kind);
  if (facts.no_share != nullptr) throw Error(facts.no_share);
  return facts.wire_share;
}

}  // namespace lockstep::reduce
