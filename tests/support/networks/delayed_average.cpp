#include "tests/support/networks/delayed_average.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "lockstep/base/error.hpp"
#include "reduce/plain_state.hpp"

namespace lockstep::test {

using backend::Part;
using backend::Vector;

namespace {

constexpr std::size_t float_bytes = sizeof(float);

std::vector<Part> parts_of(const backend::Parameters& parameters) {
  std::vector<Part> parts{Part::weights, Part::momentum};
  if (parameters.has_average()) parts.push_back(Part::average);
  return parts;
}

std::string rank_key(int rank) { return fmt::format("rank-{}", rank); }

}  // namespace

DelayedAverage::DelayedAverage(const DelayedAverageSpec& how, reduce::ExchangeSpec spec,
                               const reduce::ExchangeParts& parts)
    : how_(how), spec_(std::move(spec)), parts_(parts), vectors_(parts.backend.vectors()) {
  const std::size_t bytes = layout().size * float_bytes;
  sent_ = vectors_.allocate(bytes, "the weights that were sent");
  sum_ = vectors_.allocate(bytes, "the sum of the weights");
  largest_ = vectors_.allocate(float_bytes, "the largest gradient");
  final_.assign(layout().slices.size(), true);
}

DelayedAverage::~DelayedAverage() {
  if (arrived_ && std::uncaught_exceptions() == 0) parts_.communicator.network().synchronize();
}

reduce::MakeExchange DelayedAverage::maker(const DelayedAverageSpec& how) {
  return [how](reduce::ExchangeSpec spec, const reduce::ExchangeParts& parts) {
    return std::make_unique<DelayedAverage>(how, std::move(spec), parts);
  };
}

std::string DelayedAverage::note() const {
  return fmt::format("each rank steps alone, and ranks average their weights every {} step(s){}",
                     how_.period, how_.late ? ", a step late" : "");
}

Vector DelayedAverage::of(Part part, std::size_t first, std::size_t count) const {
  return backend::vector(parts_.parameters.device_pointer(part) + first, count);
}

Vector DelayedAverage::in(const backend::DeviceMemory& memory, std::size_t count) const {
  return backend::vector(reinterpret_cast<float*>(memory.get()), count);
}

void DelayedAverage::begin() {
  check(std::all_of(final_.begin(), final_.end(), [](bool is) { return is; }) && !settled_,
        "a step began before the last one was over");
  final_.assign(final_.size(), false);
}

void DelayedAverage::ready(std::size_t slice) {
  check(!final_.at(slice), "a slice became final twice");
  final_[slice] = true;
}

/// The gradients are divided by the rows of all ranks: times their number they are one rank's.
void DelayedAverage::wait(std::size_t number) {
  const reduce::Bucket& bucket = spec_.buckets.at(number);
  for (std::size_t s = bucket.first_slice; s < bucket.last_slice; ++s)
    check(final_[s], "a bucket was never filled");
  vectors_.scale(static_cast<float>(world()), of(Part::gradients, bucket.offset, bucket.size));
}

reduce::SliceRange DelayedAverage::updates_after(std::size_t bucket) const {
  const reduce::Bucket& full = spec_.buckets.at(bucket);
  if (!spec_.update_at_once) return {full.first_slice, full.last_slice};
  return bucket + 1 == spec_.buckets.size() ? reduce::SliceRange{0, final_.size()}
                                            : reduce::SliceRange{};
}

void DelayedAverage::start_sum(const Vector& values, const char* what) {
  device::Stream& network = parts_.communicator.network();
  // The values precede their sum.
  network.wait(*parts_.backend.device().compute().record());
  parts_.communicator.all_reduce(values.elements(), comm::Reduction::sum, what, network);
}

void DelayedAverage::average(const Vector& values, const char* what) {
  start_sum(values, what);
  // The sum precedes its use.
  parts_.backend.device().compute().wait(*parts_.communicator.network().record());
  vectors_.scale(1 / static_cast<float>(world()), values);
}

const float* DelayedAverage::largest_gradient() {
  auto* found = reinterpret_cast<float*>(largest_.get());
  vectors_.largest(of(Part::gradients, 0, layout().size), found);
  device::Stream& network = parts_.communicator.network();
  network.wait(*parts_.backend.device().compute().record());
  // As an integer: the order is the same, and a NaN is the largest for every transport.
  parts_.communicator.all_reduce({found, 1, comm::ElementType::i32}, comm::Reduction::max,
                                 "the largest gradient", network);
  parts_.backend.device().compute().wait(*network.record());
  return found;
}

/// What the average differed by when it was sent.
void DelayedAverage::apply_difference() {
  const std::size_t count = layout().learned_size;
  parts_.backend.device().compute().wait(*arrived_);  // the sum precedes its use
  arrived_.reset();
  pending_ = false;
  vectors_.scale(1 / static_cast<float>(world()), in(sum_, count));
  if (!how_.late) {
    vectors_.cast(in(sum_, count), learned(Part::weights));
  } else {
    vectors_.add(-1, in(sent_, count), in(sum_, count));
    vectors_.add(1, in(sum_, count), learned(Part::weights));
  }
  parts_.parameters.weights_changed();
}

void DelayedAverage::after_update() {
  if (pending_) apply_difference();
  if (++steps_ % how_.period != 0) return;
  const std::size_t count = layout().learned_size;
  average(of(Part::weights, count, layout().size - count), "running statistics");
  parts_.parameters.weights_changed();
  vectors_.cast(learned(Part::weights), in(sent_, count));
  vectors_.cast(learned(Part::weights), in(sum_, count));
  start_sum(in(sum_, count), "weights");
  arrived_ = parts_.communicator.network().record();
  pending_ = true;
  if (!how_.late) apply_difference();
}

/// The mean over the ranks; a difference that is not applied yet has the mean 0.
void DelayedAverage::settle() {
  check(!settled_, "the ranks are settled already");
  settled_ = true;
  const std::size_t size = layout().size;
  for (const Part part : parts_of(parts_.parameters)) {
    own_.push_back({part, vectors_.allocate(size * float_bytes, "a rank's own state")});
    vectors_.cast(of(part, 0, size), in(own_.back().memory, size));
    average(of(part, 0, size), "settling the ranks");
  }
  parts_.parameters.weights_changed();
}

void DelayedAverage::unsettle() {
  check(settled_, "the ranks are not settled");
  settled_ = false;
  for (const Copy& copy : own_)
    vectors_.cast(in(copy.memory, layout().size), of(copy.part, 0, layout().size));
  parts_.parameters.weights_changed();
  parts_.backend.device().compute().synchronize();  // the copies are read
  own_.clear();
}

std::vector<reduce::ArenaPart> DelayedAverage::saved() const {
  std::vector<reduce::ArenaPart> all;
  for (const Part part : parts_of(parts_.parameters))
    all.push_back(arena_part(parts_, of(part, 0, layout().size)));
  all.push_back(arena_part(parts_, in(sent_, layout().size)));
  all.push_back(arena_part(parts_, in(sum_, layout().size)));
  return all;
}

reduce::StateOutline DelayedAverage::outline() const {
  reduce::StateOutline state{
      .texts = {{"steps", std::to_string(steps_)}, {"pending", pending_ ? "1" : "0"}}, .parts = {}};
  for (int rank = 0; rank < parts_.communicator.world(); ++rank)
    state.parts.push_back({rank_key(rank), plain_bytes(layout(), saved())});
  return state;
}

void DelayedAverage::save(comm::Control& control, const reduce::TakeBytes& take) const {
  check(!settled_, "the exchange is settled");
  if (arrived_) parts_.backend.device().compute().wait(*arrived_);
  for (int rank = 0; rank < parts_.communicator.world(); ++rank) {
    save_plain(parts_, rank, saved(), take);
    reduce::next_part(control);
  }
}

std::string DelayedAverage::load(const reduce::SavedState& state) {
  require(parts_.communicator.rank() != how_.unloadable, "cannot load its part");
  require(state.parts("rank-") == world(),
          fmt::format("the exchange's state is of {} rank(s), not of {}", state.parts("rank-"),
                      world()));
  require(load_plain(parts_, state, rank_key(parts_.communicator.rank()), saved()),
          "the exchange's state is another network's");
  steps_ = std::stoull(state.find("steps").value());
  pending_ = state.find("pending") == "1";
  if (pending_) arrived_ = parts_.communicator.network().record();
  parts_.parameters.weights_changed();
  return "";
}

}  // namespace lockstep::test
