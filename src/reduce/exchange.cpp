#include "lockstep/reduce/exchange.hpp"

#include <fmt/core.h>

#include <utility>

#include "lockstep/base/error.hpp"
#include "reduce/apart/gossip.hpp"
#include "reduce/apart/local.hpp"
#include "reduce/exact.hpp"
#include "reduce/narrow.hpp"
#include "reduce/power_sgd.hpp"

namespace lockstep::reduce {

void load_state(Exchange& exchange, const std::string& saved_by, const ExchangeState& state,
                const std::string& origin) {
  require(saved_by == exchange.name(),
          fmt::format("{} was written with the exchange '{}', but this run has '{}': keep the "
                      "exchange of the run (comm.wire, comm.power-sgd, sync.every, sync.gossip)",
                      origin, saved_by, exchange.name()));
  try {
    exchange.load(state);
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
