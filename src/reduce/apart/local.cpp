#include "reduce/apart/local.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/arena.hpp"
#include "reduce/plain_state.hpp"

namespace lockstep::reduce {

using backend::Part;
using backend::Vector;

namespace {

constexpr const char *group_prefix = "group-", *agreed_key = "agreed", *velocity_key = "velocity";
std::string group_key(std::size_t group) { return fmt::format("{}{}", group_prefix, group); }

std::vector<std::vector<int>> ranks_of_groups(const std::vector<std::size_t>& groups, int world) {
  check(groups.size() == static_cast<std::size_t>(world), "each rank has a group");
  std::vector<std::vector<int>> ranks(1 + *std::ranges::max_element(groups));
  for (int rank = 0; rank < world; ++rank)
    ranks[groups[static_cast<std::size_t>(rank)]].push_back(rank);
  return ranks;
}

}  // namespace

/// What settling takes, and what an outer momentum does.
std::size_t local_bytes(std::size_t numbers, bool second_moments) {
  return settling_bytes(numbers, true, second_moments) + 2 * numbers * sizeof(float);
}

LocalExchange::LocalExchange(const ExchangeSpec& spec, const ExchangeParts& parts)
    : how_(spec.local),
      loss_scale_(spec.loss_scale),
      parts_(parts),
      vectors_(parts.backend.vectors()),
      groups_(ranks_of_groups(how_.groups, parts.communicator.world())),
      group_(parts.communicator.split(static_cast<int>(group_number()), parts.communicator.rank(),
                                      "group")),
      everywhere_(spec, parts.communicator, parts.backend.device().compute(),
                  parts.parameters.device_pointer(Part::gradients)),
      in_group_(spec, *group_, parts.backend.device().compute(),
                parts.parameters.device_pointer(Part::gradients)),
      own_(parts) {
  check(how_.every > 0, "groups agree every few steps");
  if (how_.outer_momentum > 0) {
    agreed_ = own_.allocate("the weights that groups agreed on");
    velocity_ = own_.allocate("the outer momentum");
  }
  if (loss_scale_) largest_ = vectors_.allocate(sizeof(float), "the largest gradient");
}

std::string LocalExchange::note() const {
  const std::string begins =
      how_.from_step > 0 ? fmt::format(" from step {} on", how_.from_step) : "";
  const std::string outer = how_.outer_momentum > 0
                                ? fmt::format(", with an outer momentum of {}", how_.outer_momentum)
                                : "";
  const auto [least, most] = std::ranges::minmax(groups_, {}, &std::vector<int>::size);
  return fmt::format(
      "{} groups of {} ranks agree on their weights every {} steps{}{}; between that they differ, "
      "and their mean is evaluated and saved",
      groups_.size(),
      least.size() == most.size() ? fmt::format("{}", most.size())
                                  : fmt::format("{} to {}", least.size(), most.size()),
      how_.every, begins, outer);
}

/// With a loss scale groups meet in each step anyway; else at the next agreement, or before.
std::size_t LocalExchange::meets_every() const {
  if (!is_local() || loss_scale_) return 1;
  const std::uint64_t left = how_.every - (steps_ - how_.from_step) % how_.every;
  return std::min<std::uint64_t>(most_steps_apart, left);
}

void LocalExchange::begin() {
  summing().begin();
  if (steps_ == how_.from_step) begin_equal();
}

/// All groups have the same weights.
void LocalExchange::begin_equal() {
  if (how_.outer_momentum > 0) vectors_.cast(own_.of(Part::weights), own_.in(agreed_));
}

/// A group's sum is divided by the rows of all ranks: as if the other groups had given the same.
void LocalExchange::wait(std::size_t bucket) {
  summing().wait(bucket);
  if (!is_local()) return;
  const Bucket& done = buckets()[bucket];
  const float groups = static_cast<float>(world()) / static_cast<float>(group_size());
  vectors_.scale(groups, own_.of(Part::gradients, done.offset, done.size));
}

const float* LocalExchange::largest_gradient() {
  if (!is_local()) return nullptr;
  auto* found = reinterpret_cast<float*>(largest_.get());
  vectors_.largest(own_.of(Part::gradients), found);
  device::Stream& network = parts_.communicator.network();
  network.wait(*parts_.backend.device().compute().record());  // it is found before it is compared
  // As an integer: the order is the same, and a NaN is the largest for every transport.
  parts_.communicator.all_reduce({found, 1, comm::ElementType::i32}, comm::Reduction::max,
                                 "the largest gradient", network);
  parts_.backend.device().compute().wait(*network.record());
  return found;
}

void LocalExchange::after_update() {
  ++steps_;
  if (differs() && (steps_ - how_.from_step) % how_.every == 0) agree();
}

void LocalExchange::agree() {
  own_.average(own_.of(Part::weights), "weights");
  if (how_.outer_momentum > 0) step_outwards();
  parts_.parameters.weights_changed();
}

/// With g = agreed - mean: v = momentum * v + g, weights = agreed - lr * (g + momentum * v).
void LocalExchange::step_outwards() {
  const std::size_t count = layout().learned_size;
  const Vector weights = own_.of(Part::weights, 0, count);
  const Vector agreed = own_.in(agreed_, count), velocity = own_.in(velocity_, count);
  vectors_.add(-1, agreed, weights);  // -g
  vectors_.scale(how_.outer_momentum, velocity);
  vectors_.add(-1, weights, velocity);
  vectors_.scale(how_.outer_lr, weights);
  vectors_.add(-how_.outer_lr * how_.outer_momentum, velocity, weights);
  vectors_.add(1, agreed, weights);
  vectors_.cast(weights, agreed);
}

void LocalExchange::settle() {
  if (differs()) own_.settle();
}

std::vector<ArenaPart> LocalExchange::agreed() const {
  return {arena_part(parts_, own_.in(agreed_))};
}
std::vector<ArenaPart> LocalExchange::velocity() const {
  return {arena_part(parts_, own_.in(velocity_))};
}

StateOutline LocalExchange::outline() const {
  StateOutline state{.texts = {{steps_key, std::to_string(steps_)}}, .parts = {}};
  if (!differs()) return state;
  const std::size_t each = plain_bytes(layout(), own_.saved());
  for (std::size_t g = 0; g < groups_.size(); ++g) state.parts.push_back({group_key(g), each});
  if (how_.outer_momentum == 0) return state;
  state.parts.push_back({agreed_key, plain_bytes(layout(), agreed())});
  state.parts.push_back({velocity_key, plain_bytes(layout(), velocity())});
  return state;
}

void LocalExchange::save(comm::Control& control, const TakeBytes& take) const {
  check(!own_.is_settled(), "the exchange is settled");
  if (!differs()) return;
  for (const std::vector<int>& ranks : groups_) {
    save_plain(parts_, ranks.front(), own_.saved(), take);
    next_part(control);
  }
  if (how_.outer_momentum == 0) return;
  save_plain(parts_, 0, agreed(), take);
  save_plain(parts_, 0, velocity(), take);
}

void LocalExchange::begin_at(std::uint64_t step) {
  steps_ = step;
  if (differs()) begin_equal();
}

/// What groups have in common means the same for any number of them. False if it does not fit.
bool LocalExchange::load_common(const SavedState& state) {
  const bool there = state.parts(agreed_key) > 0;
  if (how_.outer_momentum == 0) return !there;
  return load_plain(parts_, state, agreed_key, agreed()) &&
         load_plain(parts_, state, velocity_key, velocity());
}

/// A state of a step before groups trained apart has none of theirs: they begin now.
std::string LocalExchange::load(const SavedState& state) {
  constexpr std::string_view left_out = "each group's own weights, which begin at their mean";
  begin_at(saved_steps(state, name()));
  if (!differs()) return "";
  if (is_unordered(state))
    return of_older(how_.outer_momentum > 0 ? fmt::format("the outer momentum and {}", left_out)
                                            : std::string(left_out));
  const std::size_t saved_by = state.parts(group_prefix);
  if (saved_by == 0) return "";
  const auto fits = [&](bool fit) {
    require(fit, fmt::format("the state of the exchange '{}' is of another network, or of a run "
                             "that keeps other things for each group: keep sync.outer-momentum and "
                             "optim.ema as they were",
                             name()));
  };
  fits(load_common(state));
  if (saved_by != groups_.size()) return of_others(left_out, saved_by, "groups", groups_.size());
  fits(load_plain(parts_, state, group_key(group_number()), own_.saved()));
  parts_.parameters.weights_changed();
  return "";
}

}  // namespace lockstep::reduce
