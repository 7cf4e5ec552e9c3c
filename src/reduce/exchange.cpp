#include "lockstep/reduce/exchange.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.hpp"
#include "reduce/apart/gossip.hpp"
#include "reduce/apart/local.hpp"
#include "reduce/exact.hpp"
#include "reduce/narrow.hpp"
#include "reduce/power_sgd.hpp"

namespace lockstep::reduce {

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

std::unique_ptr<Exchange> make_exchange(ExchangeSpec spec, const ExchangeParts& parts) {
  switch (spec.kind) {
    case ExchangeKind::exact:
      return std::make_unique<ExactExchange>(
          std::move(spec), parts.communicator, parts.backend.device().compute(),
          parts.parameters.device_pointer(backend::Part::gradients));
    case ExchangeKind::bf16:
    case ExchangeKind::fp16:
      return std::make_unique<HalfExchange>(std::move(spec), parts);
    case ExchangeKind::int8:
      return std::make_unique<Int8Exchange>(std::move(spec), parts);
    case ExchangeKind::power_sgd:
      return std::make_unique<PowerSgdExchange>(std::move(spec), parts);
    case ExchangeKind::local:
      return std::make_unique<LocalExchange>(spec, parts);
    case ExchangeKind::gossip:
      return std::make_unique<GossipExchange>(spec, parts);
  }
  throw Error("this exchange does not exist");
}

std::size_t exchange_bytes(ExchangeKind kind, std::size_t numbers, std::size_t world,
                           bool second_moments, const GossipSpec& gossip) {
  switch (kind) {
    case ExchangeKind::exact:
      return 0;
    case ExchangeKind::bf16:
    case ExchangeKind::fp16:
      return half_bytes(numbers);
    case ExchangeKind::int8:
      return int8_bytes(numbers, world);
    case ExchangeKind::power_sgd:
      return power_sgd_bytes(numbers);
    case ExchangeKind::local:
      return local_bytes(numbers, second_moments);
    case ExchangeKind::gossip:
      return gossip_bytes(numbers, second_moments, gossip.late);
  }
  throw Error("this exchange does not exist");
}

SavedBytes saved_bytes(ExchangeKind kind, std::size_t numbers, bool average, bool second_moments,
                       const LocalSpec& local, const GossipSpec& gossip) {
  const std::size_t trained = 2 + (average ? 1U : 0) + (second_moments ? 1U : 0);
  const std::size_t floats = numbers * sizeof(float);
  switch (kind) {
    case ExchangeKind::exact:
    case ExchangeKind::bf16:
    case ExchangeKind::fp16:
      return {};
    case ExchangeKind::int8:
      return {.each = half_bytes(numbers), .common = half_bytes(numbers)};
    case ExchangeKind::power_sgd:
      return {.each = floats, .common = floats};
    case ExchangeKind::local:
      return {.each = trained * floats, .common = (local.outer_momentum > 0 ? 2 : 0) * floats};
    case ExchangeKind::gossip:
      return {.each = (trained + gossip.late) * floats};
  }
  throw Error("this exchange does not exist");
}

double wire_share(ExchangeKind kind) {
  switch (kind) {
    case ExchangeKind::exact:
    case ExchangeKind::local:
      return 1;
    case ExchangeKind::bf16:
    case ExchangeKind::fp16:
      return 0.5;
    case ExchangeKind::int8:
      return 0.25 + 1.0 / static_cast<double>(backend::arithmetic::scale_block);
    case ExchangeKind::power_sgd:
      throw Error("what travels by PowerSGD depends on the network");
    case ExchangeKind::gossip:
      throw Error("gossip sums nothing: all weights travel, once in each step");
  }
  throw Error("this exchange does not exist");
}

}  // namespace lockstep::reduce
