#include "ports/cuda/plan/plan.hpp"

#include <algorithm>

#include "lockstep/nn/cost.hpp"
#include "lockstep/nn/partition.hpp"

namespace lockstep::cuda {

std::vector<std::size_t> cut_units(const nn::Network& network, const std::vector<Unit>& units,
                                   const std::vector<bool>& applied) {
  const std::vector<std::size_t> points = nn::cut_points(network);
  std::vector<std::size_t> cuts;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const bool has_place =
        (units[u].kind == UnitKind::norm && !applied[u]) || units[u].kind == UnitKind::max_pool;
    if (has_place && std::binary_search(points.begin(), points.end(), units[u].value))
      cuts.push_back(u);
  }
  return cuts;
}

namespace {

backend::LifetimesSpec spec_of(const nn::Network& network, const std::vector<Unit>& units,
                               const std::vector<bool>& applied, bool training) {
  backend::LifetimesSpec spec{.parts = units.size(),
                              .operations = {},
                              .cuts = cut_units(network, units, applied),
                              .begins = {},
                              .training = training,
                              .alignment = block_alignment};
  for (const Unit& unit : units)
    spec.operations.push_back(nn::cost_of(network, unit.node, {}).forward.operations);
  for (const std::size_t cut : spec.cuts) spec.begins.push_back(cut + 1);
  return spec;
}

}  // namespace

Lifetimes::Lifetimes(const nn::Network& network, const std::vector<Unit>& units,
                     const std::vector<BufferRequest>& requests, const std::vector<bool>& applied,
                     bool training)
    : backend::Lifetimes(spec_of(network, units, applied, training)),
      units_(units),
      requests_(requests) {
  choose({{0, segments(), false}});
}

/// By unit: whether it must run again, for [begin, end) without the last one.
std::vector<bool> Lifetimes::needed_again(std::size_t begin, std::size_t end) const {
  std::vector<bool> makes(units_.size()), needed(units_.size());
  for (const BufferRequest& request : requests_) {
    const bool inside = request.unit >= begin && request.unit + 1 < end;
    if (!request.repeated || !inside) continue;
    makes[request.unit] = true;
    if (request.last_backward) needed[request.unit] = true;
  }
  for (std::size_t u = end - 1; u-- > begin;)
    for (const std::size_t reader : units_[u].readers)
      if (makes[u] && needed[reader]) needed[u] = true;
  return needed;
}

backend::Lives Lifetimes::lives(const BufferRequest& request) const {
  const std::size_t unit = request.unit;
  if (request.always) return {{0, spec().parts + after_forward().size()}, {}};
  if (request.of_backward) return {{backward_at(unit), backward_at(*request.last_backward)}, {}};
  const backend::Life forward{unit, request.last_forward};
  if (!spec().training) return {forward, {}};
  // The next span may be made again from it.
  const auto last = request.repeated && ends_span(unit) ? unit : request.last_backward;
  if (!request.repeated || !made_again(unit)) {
    if (last) return {{unit, backward_at(*last)}, {}};
    return {forward, {}};
  }
  if (last) return {forward, backend::Life{again_at(unit), backward_at(*last)}};
  std::size_t reader = request.last_forward;
  while (reader > unit && !made_again(reader)) --reader;
  return {forward, backend::Life{again_at(unit), again_at(reader)}};
}

std::vector<backend::PlannedBuffer> Lifetimes::requested() const {
  std::vector<backend::PlannedBuffer> buffers;
  for (const BufferRequest& request : requests_)
    buffers.push_back({.bytes = request.bytes, .lives = lives(request), .unit = request.unit});
  return buffers;
}

}  // namespace lockstep::cuda
