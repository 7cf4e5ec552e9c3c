#include "reduce/packed_vectors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"

namespace lockstep::reduce {
namespace {

std::size_t bytes_of(const std::vector<backend::Vector>& values) {
  std::size_t sum = 0;
  for (const backend::Vector& one : values) sum += one.elements().bytes();
  return sum;
}

}  // namespace

std::string packed(backend::Vectors& vectors, const std::vector<backend::Vector>& values) {
  std::string bytes(bytes_of(values), '\0');
  std::span<std::byte> left = std::as_writable_bytes(std::span(bytes));
  for (const backend::Vector& one : values) {
    vectors.read(one.data, left.first(one.elements().bytes()));
    left = left.subspan(one.elements().bytes());
  }
  return bytes;
}

bool unpack(backend::Vectors& vectors, std::string_view bytes,
            const std::vector<backend::Vector>& to) {
  if (bytes.size() != bytes_of(to)) return false;
  std::span<const std::byte> left = std::as_bytes(std::span(bytes));
  for (const backend::Vector& one : to) {
    vectors.write(left.first(one.elements().bytes()), one.data);
    left = left.subspan(one.elements().bytes());
  }
  return true;
}

ExchangeState gather_state(comm::Control& control, const std::string& key, const std::string& mine,
                           std::size_t at_once) {
  constexpr std::string_view phase = "the exchange's state";
  const std::size_t piece =
      std::max<std::size_t>(1, at_once / static_cast<std::size_t>(control.world()));
  const double most = control.max({static_cast<double>(mine.size())}, phase)[0];
  const std::vector<std::string> keys = control.gather_at_root(key, phase);
  ExchangeState all;
  for (std::size_t sent = 0; static_cast<double>(sent) < most; sent += piece) {
    const auto now = control.gather_at_root(mine.substr(std::min(sent, mine.size()), piece), phase);
    for (std::size_t rank = 0; rank < now.size(); ++rank) {
      if (now[rank].empty()) continue;
      std::string& bytes = all[keys[rank]];
      if (sent == 0) bytes.reserve(static_cast<std::size_t>(most));
      bytes += now[rank];
    }
  }
  return all;
}

std::string rank_key(std::size_t rank) { return fmt::format("{}{}", rank_prefix, rank); }

std::uint64_t saved_steps(const SavedState& state, const std::string& name) {
  const auto steps = state.find(steps_key);
  const auto number = steps ? whole_number<std::uint64_t>(*steps) : std::nullopt;
  require(number.has_value(),
          fmt::format("the state of the exchange '{}' has no number of steps", name));
  return *number;
}

std::string of_others(std::string_view what, std::size_t saved_by, std::string_view who,
                      std::size_t now) {
  return fmt::format("{} (of {} {}, now {})", what, saved_by, who, now);
}

}  // namespace lockstep::reduce
