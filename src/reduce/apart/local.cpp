#include "reduce/apart/local.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/arena.hpp"
#include "reduce/packed_vectors.hpp"

namespace lockstep::reduce {

using backend::Part;
using backend::Vector;

namespace {

constexpr const char* group_prefix = "group-";
std::string group_key(int group) { return fmt::format("{}{}", group_prefix, group); }

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
      group_(parts.communicator.split(how_.group, parts.communicator.rank(), "group")),
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
  return fmt::format(
      "groups of {} ranks agree on their weights every {} steps{}{}; between that they differ, and "
      "their mean is evaluated and saved",
      group_->world(), how_.every, begins, outer);
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

/// What one group's bytes in a checkpoint hold, in order.
std::vector<Vector> LocalExchange::saved() const {
  std::vector<Vector> all = own_.changing();
  if (how_.outer_momentum > 0) {
    all.push_back(own_.in(agreed_));
    all.push_back(own_.in(velocity_));
  }
  return all;
}

ExchangeState LocalExchange::save(comm::Control& control) const {
  check(!own_.is_settled(), "the exchange is settled");
  const bool tells = differs() && group_->rank() == 0;
  ExchangeState state =
      gather_state(control, group_key(how_.group), tells ? packed(vectors_, saved()) : "");
  if (control.rank() == 0) state[steps_key] = std::to_string(steps_);
  return state;
}

/// A state of a step before groups trained apart has none of theirs: they begin now.
std::string LocalExchange::load(const SavedState& state) {
  steps_ = saved_steps(state, name());
  if (!differs()) return "";
  begin_equal();
  const std::size_t saved_by = state.count(group_prefix), groups = world() / group_size();
  if (saved_by == 0) return "";
  if (saved_by != groups)
    return of_others("each group's own weights, which begin at their mean", saved_by, "groups",
                     groups);
  const auto mine = state.find(group_key(how_.group));
  require(mine && unpack(vectors_, *mine, saved()),
          fmt::format("the state of the exchange '{}' is of another network, or of a run that "
                      "keeps other things for each group: keep sync.outer-momentum and optim.ema "
                      "as they were",
                      name()));
  parts_.parameters.weights_changed();
  return "";
}

}  // namespace lockstep::reduce
