// Why few ways are looked at closely. A way's time without anything made again is known at once,
// and making values again only adds to it. So the ways are tried in the order of their times, and
// the first one that fits is the fastest. Where nothing fits, that is known from the smallest
// micro-batches alone: larger ones take more.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/share.hpp"
#include "lockstep/nn/lines.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/study/parts/parts.hpp"

namespace lockstep::study {
namespace {

constexpr std::size_t wanted = 3;  // ways that fit

/// What says how much memory a way takes, but for its micro-batches.
std::vector<std::size_t> shape_of(const Parts& parts) {
  return {parts.stages, parts.tiles, static_cast<std::size_t>(parts.order), parts.again ? 1U : 0U};
}

std::vector<std::size_t> divisors(std::size_t number) {
  std::vector<std::size_t> all;
  for (std::size_t i = 1; i <= number; ++i)
    if (number % i == 0) all.push_back(i);
  return all;
}

/// It is given that values are made again.
bool makes_again(const PartsSpec& spec) {
  return spec.fixed.recompute && spec.fixed.recompute->mode != backend::Recompute::Mode::none;
}

/// gpipe takes as long as 1f1b, and more memory.
std::vector<train::PipelineOrder> orders_of(const PartsSpec& spec, std::size_t stages) {
  using enum train::PipelineOrder;
  if (stages == 1) return {one_f_one_b};
  if (spec.fixed.order) return {*spec.fixed.order};
  return makes_again(spec) ? std::vector{one_f_one_b} : std::vector{one_f_one_b, zb_h1};
}

std::vector<Parts> all_ways(const PartsSpec& spec) {
  const std::size_t most_stages = spec.passes_values ? nn::block_ends(spec.network).size() + 1 : 1,
                    most_tiles = spec.passes_values ? nn::most_tiles(spec.network) : 1;
  const FixedParts& fixed = spec.fixed;
  const auto differs = [](const auto& asked, const auto& one) {
    return asked.value_or(one) != one;
  };
  std::vector<Parts> ways;
  for (const std::size_t stages : divisors(spec.ranks))
    for (const std::size_t tiles : divisors(spec.ranks / stages)) {
      if (differs(fixed.stages, stages) || differs(fixed.tiles, tiles)) continue;
      Parts parts{.replicas = spec.ranks / stages / tiles, .stages = stages, .tiles = tiles};
      const std::size_t rows = even_share(spec.batch, parts.replicas, 0);
      if (stages > most_stages || tiles > most_tiles || parts.replicas > spec.batch) continue;
      for (const std::size_t m :
           fixed.micro_batches ? std::vector{*fixed.micro_batches} : divisors(rows)) {
        if (m > rows) continue;
        parts.micro_batches = m;
        parts.again = makes_again(spec);
        for (const train::PipelineOrder order : orders_of(spec, stages)) {
          parts.order = order;
          ways.push_back(parts);
        }
      }
    }
  return ways;
}

/// Of times that are equal but for rounding the one with fewer parts.
bool before(const PlannedParts& a, const PlannedParts& b) {
  constexpr double ns_in_ms = 1e6;
  const auto key = [](const PlannedParts& way) {
    const Parts& p = way.parts;
    return std::vector{static_cast<std::size_t>(std::llround(way.step.step_ms * ns_in_ms)),
                       p.stages, p.tiles, p.micro_batches, static_cast<std::size_t>(p.order)};
  };
  return key(a) < key(b);
}

class PartsSearch {
 public:
  explicit PartsSearch(const PartsSpec& spec) : spec_(spec) {
    for (const Parts& parts : all_ways(spec)) {
      add({parts, time_of(spec, parts), {}});
      std::size_t& most = most_micro_batches_[shape_of(parts)];
      most = std::max(most, parts.micro_batches);
    }
    require(!open_.empty(),
            fmt::format("{} ranks cannot share a batch of {} rows of {} in a way that is allowed",
                        spec.ranks, spec.batch, spec.network.name));
  }

  PartsAnswer answer() {
    PartsAnswer answer;
    while (!open_.empty() && answer.fitting.size() < wanted) take(answer);
    if (answer.fitting.empty()) answer.smallest = smallest_;
    if (answer.fitting.empty() || answer.fitting.front().parts.stages == 1) return answer;
    const PlannedParts& first = answer.fitting.front();
    const Parts& parts = first.parts;
    PlannedParts alone{
        {.replicas = parts.replicas, .micro_batches = parts.micro_batches, .again = true}, {}, {}};
    PartsSpec least = spec_;
    least.fixed.recompute.reset();
    least.memory_limit = 0;
    alone.memory = memory_of(least, alone.parts);
    if (alone.memory.bytes < first.memory.bytes) answer.without_stages = alone;
    return answer;
  }

 private:
  void add(PlannedParts way) {
    open_.insert(std::ranges::upper_bound(open_, way, before), std::move(way));
  }

  /// Takes the fastest of the open ways.
  void take(PartsAnswer& answer) {
    PlannedParts way = std::move(open_.front());
    open_.erase(open_.begin());
    const bool known = std::ranges::any_of(answer.fitting, [&](const PlannedParts& faster) {
      return faster.parts.stages == way.parts.stages && faster.parts.tiles == way.parts.tiles;
    });
    if (known) return;
    if (way.memory.bytes == 0) {
      if ((answer.too_large || way.parts.again) && hopeless(way.parts)) return add_again(way);
      way.memory = is_smallest(way.parts) ? of_smallest(way.parts) : memory_of(spec_, way.parts);
      if (way.parts.again) {
        way.step = time_of(spec_, way.parts, way.memory.made_again);
        if (fits(way)) return add(std::move(way));
      }
    }
    if (fits(way)) {
      answer.fitting.push_back(std::move(way));
      return;
    }
    if (!answer.too_large && !way.parts.again) answer.too_large = way;
    if (!smallest_ || way.memory.bytes < smallest_->memory.bytes) smallest_ = way;
    add_again(way);
  }

  void add_again(const PlannedParts& way) {
    if (spec_.fixed.recompute || way.parts.again || way.parts.order == train::PipelineOrder::zb_h1)
      return;
    PlannedParts again{way.parts, way.step, {}};
    again.parts.again = true;
    most_micro_batches_[shape_of(again.parts)] = most_micro_batches_[shape_of(way.parts)];
    add(std::move(again));
  }

  bool fits(const PlannedParts& way) const { return way.memory.bytes <= spec_.memory_limit; }

  bool is_smallest(const Parts& parts) {
    return parts.micro_batches == most_micro_batches_[shape_of(parts)];
  }

  /// The memory of the smallest micro-batches of the same shape.
  const RanksMemory& of_smallest(Parts parts) {
    const std::vector<std::size_t> shape = shape_of(parts);
    const auto [found, is_new] = of_smallest_.try_emplace(shape);
    parts.micro_batches = most_micro_batches_[shape];
    if (is_new) found->second = memory_of(spec_, parts);
    return found->second;
  }

  /// The smallest micro-batches do not fit: nor do larger ones.
  bool hopeless(const Parts& parts) {
    return !is_smallest(parts) && of_smallest(parts).bytes > spec_.memory_limit;
  }

  const PartsSpec& spec_;
  std::vector<PlannedParts> open_;  ///< by time
  std::optional<PlannedParts> smallest_;
  std::map<std::vector<std::size_t>, std::size_t> most_micro_batches_;  ///< by shape_of()
  std::map<std::vector<std::size_t>, RanksMemory> of_smallest_;         ///< by shape_of(), too
};

}  // namespace

PartsAnswer plan_parts(const PartsSpec& spec) { return PartsSearch(spec).answer(); }

}  // namespace lockstep::study
