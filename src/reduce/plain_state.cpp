#include "reduce/plain_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <optional>
#include <span>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/nn/arena.hpp"

namespace lockstep::reduce {
namespace {

constexpr std::string_view phase = "the exchange's state";

std::size_t number_bytes(const ArenaPart& part) {
  return part.half ? sizeof(std::uint16_t) : sizeof(float);
}

/// The gradients of these slices.
backend::Vector gradients(const ExchangeParts& parts, const nn::ArenaLayout& layout,
                          std::size_t slices) {
  const std::size_t count =
      slices < layout.moving_slices() ? layout.slices[slices].offset : layout.size;
  return backend::vector(parts.parameters.device_pointer(backend::Part::gradients), count);
}

template <class Number>
void give_bytes(const std::vector<Number>& numbers, const TakeBytes& take) {
  take({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)});
}

/// A bf16 is the upper half of the fp32 of the same value.
std::vector<std::uint16_t> upper_halves(const std::vector<float>& values) {
  std::vector<std::uint16_t> halves(values.size());
  std::ranges::transform(values, halves.begin(), [](float value) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  });
  return halves;
}

}  // namespace

ArenaPart arena_part(const ExchangeParts& parts, const backend::Vector& values) {
  const nn::ArenaLayout& layout = parts.parameters.layout();
  const bool whole = values.count == layout.size;
  check(whole || values.count == layout.learned_size, "a vector that lies as the arena does");
  backend::Vectors& vectors = parts.backend.vectors();
  const backend::Vector there =
      backend::vector(parts.parameters.device_pointer(backend::Part::gradients), values.count);
  return {.slices = whole ? layout.moving_slices() : layout.learned_slices,
          .half = false,
          .give = [&vectors, values, there] { vectors.cast(values, there); },
          .take = [&vectors, values, there] { vectors.cast(there, values); }};
}

std::size_t plain_bytes(const nn::ArenaLayout& layout, const std::vector<ArenaPart>& all) {
  std::size_t bytes = 0;
  for (const ArenaPart& part : all)
    for (std::size_t s = 0; s < part.slices; ++s)
      bytes += layout.slices[s].tensor.count() * number_bytes(part);
  return bytes;
}

void save_plain(const ExchangeParts& parts, int owner, const std::vector<ArenaPart>& all,
                const TakeBytes& take) {
  const int rank = parts.communicator.rank();
  if (rank != 0 && rank != owner) return;
  const nn::ArenaLayout& layout = parts.parameters.layout();
  device::Stream &compute = parts.backend.device().compute(),
                 &network = parts.communicator.network();
  std::vector<float> plain;
  for (const ArenaPart& part : all) {
    if (rank == owner) part.give();
    if (owner != 0) {
      const comm::Elements moved = gradients(parts, layout, part.slices).elements();
      network.wait(*compute.record());  // the numbers precede their sending
      if (rank == 0)
        parts.communicator.receive(moved, owner, phase, network);
      else
        parts.communicator.send(moved, 0, phase, network);
      const comm::Waiting waiting(parts.communicator.activity);
      compute.wait(*network.record());  // they have come before they are read or replaced
    }
    for (std::size_t s = 0; rank == 0 && s < part.slices; ++s) {
      plain.resize(layout.slices[s].tensor.count());
      parts.parameters.export_slice(backend::Part::gradients, s, plain);
      part.half ? give_bytes(upper_halves(plain), take) : give_bytes(plain, take);
    }
  }
}

bool load_plain(const ExchangeParts& parts, const SavedState& state, const std::string& name,
                const std::vector<ArenaPart>& all) {
  const nn::ArenaLayout& layout = parts.parameters.layout();
  const auto next = state.open(name, plain_bytes(layout, all));
  if (!next) return false;
  std::vector<float> plain;
  std::vector<std::uint16_t> halves;
  for (const ArenaPart& part : all) {
    for (std::size_t s = 0; s < part.slices; ++s) {
      plain.resize(layout.slices[s].tensor.count());
      if (part.half) {
        halves.resize(plain.size());
        (*next)(std::as_writable_bytes(std::span(halves)));
        std::ranges::transform(halves, plain.begin(), [](std::uint16_t half) {
          return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
        });
      } else {
        (*next)(std::as_writable_bytes(std::span(plain)));
      }
      parts.parameters.import_slice(backend::Part::gradients, s, plain);
    }
    part.take();
    parts.backend.device().compute().synchronize();  // the next one is imported into its place
  }
  return true;
}

void next_part(comm::Control& control) { control.barrier(phase); }

std::string rank_key(std::size_t rank) { return fmt::format("{}{}", rank_prefix, rank); }

std::uint64_t saved_steps(const SavedState& state, const std::string& name) {
  const auto steps = state.find(steps_key);
  const auto number = steps ? whole_number<std::uint64_t>(*steps) : std::nullopt;
  require(number.has_value(),
          fmt::format("the state of the exchange '{}' has no number of steps", name));
  return *number;
}

bool is_unordered(const SavedState& state) {
  return state.texts(rank_prefix) > 0 || state.texts("group-") > 0;
}

std::string of_older(std::string_view what) {
  return fmt::format("{} (saved by an older lockstep, which did not say in which order)", what);
}

std::string of_others(std::string_view what, std::size_t saved_by, std::string_view who,
                      std::size_t now) {
  return fmt::format("{} (of {} {}, now {})", what, saved_by, who, now);
}

}  // namespace lockstep::reduce
