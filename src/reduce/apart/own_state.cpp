#include "reduce/apart/own_state.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/arena.hpp"

namespace lockstep::reduce {

using backend::Part;
using backend::Vector;

std::size_t settling_bytes(std::size_t numbers, bool average, bool second_moments,
                           std::size_t free) {
  const std::size_t vectors = 2 + (average ? 1U : 0U) + (second_moments ? 1U : 0U);
  return (vectors - std::min(vectors, free)) * numbers * sizeof(float);
}

Vector OwnState::of(Part part, std::size_t first, std::size_t count) const {
  return backend::vector(parts_.parameters.device_pointer(part) + first, count);
}

backend::DeviceMemory OwnState::allocate(const char* what) const {
  return parts_.backend.vectors().allocate(layout().size * sizeof(float), what);
}

Vector OwnState::in(const backend::DeviceMemory& memory, std::size_t count) const {
  return backend::vector(reinterpret_cast<float*>(memory.get()), count);
}

std::vector<Part> OwnState::changing_parts() const {
  std::vector<Part> parts{Part::weights, Part::momentum};
  if (parts_.parameters.has_average()) parts.push_back(Part::average);
  if (parts_.parameters.has_second_moments()) parts.push_back(Part::second_moments);
  return parts;
}

std::vector<Vector> OwnState::changing() const {
  std::vector<Vector> all;
  for (const Part part : changing_parts()) all.push_back(of(part));
  return all;
}

std::vector<ArenaPart> OwnState::saved() const {
  std::vector<ArenaPart> all;
  for (const Vector& values : changing()) all.push_back(arena_part(parts_, values));
  return all;
}

void OwnState::average(const Vector& values, const char* what) const {
  device::Stream &compute = parts_.backend.device().compute(),
                 &network = parts_.communicator.network();
  network.wait(*compute.record());  // the values precede their sum
  parts_.communicator.all_reduce(values.elements(), comm::Reduction::sum, what, network);
  const comm::Waiting waiting(parts_.communicator.activity);
  compute.wait(*network.record());  // the sum precedes its use
  parts_.backend.vectors().scale(1 / static_cast<float>(parts_.communicator.world()), values);
}

void OwnState::settle(std::span<const Vector> free, const std::function<void()>& prepare) {
  check(!is_settled(), "the ranks are settled already");
  for (const Vector& values : changing()) {
    if (aside_.size() < free.size()) {
      aside_.push_back(free[aside_.size()]);
    } else {
      memory_.push_back(allocate("a rank's own state"));
      aside_.push_back(in(memory_.back()));
    }
    parts_.backend.vectors().cast(values, aside_.back());
  }
  if (prepare) prepare();
  for (const Vector& values : changing()) average(values, "settling the ranks");
  parts_.parameters.weights_changed();
}

void OwnState::unsettle() {
  if (!is_settled()) return;
  std::size_t next = 0;
  for (const Vector& values : changing()) parts_.backend.vectors().cast(aside_[next++], values);
  parts_.parameters.weights_changed();
  parts_.backend.device().compute().synchronize();  // the copies are read
  aside_.clear();
  memory_.clear();
}

}  // namespace lockstep::reduce
