#include "ports/cpu/norm_message.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::cpu {

using backend::SampleMoments;

std::size_t NormMessage::add(std::size_t channels, const Tell& tell) {
  return add_floats(2 * channels, [=](std::size_t lane, std::size_t lanes, float* to) {
    tell(channels * lane / lanes, channels * (lane + 1) / lanes, to, to + channels);
  });
}

std::size_t NormMessage::add_floats(std::size_t count, TellFloats tell) {
  places_.push_back({count, size_, std::move(tell)});
  size_ += count;
  return places_.size() - 1;
}

void NormMessage::plan(backend::NormSpan& span, std::string name) {
  span_ = &span;
  name_ = std::move(name);
  chunks_.resize(span.ranks() * size_);
}

void NormMessage::tell(std::size_t lane, std::size_t lanes) {
  float* mine = chunk(span_->rank());
  for (const Place& place : places_) place.tell(lane, lanes, mine + place.offset);
}

void NormMessage::send(std::size_t rows) {
  *chunk(span_->rank()) = static_cast<float>(rows);
  span_->gather(chunks_, name_);
}

void NormMessage::join() {
  std::fill_n(chunk(span_->rank()), size_, 0.f);
  send(0);
}

SampleMoments NormMessage::moments(std::size_t place, std::size_t channel,
                                   const std::vector<std::size_t>& values) const {
  const Place& at = places_[place];
  SampleMoments all;
  for (std::size_t rank = 0; rank < span_->ranks(); ++rank) {
    const float* from = chunk(rank) + at.offset + channel;
    all =
        merged(all, {.count = static_cast<double>(*chunk(rank)) * static_cast<double>(values[rank]),
                     .mean = from[0],
                     .squares = from[at.count / 2]});
  }
  return all;
}

NormMessage::Sums NormMessage::sums(std::size_t place, std::size_t channel) const {
  const Place& at = places_[place];
  Sums all;
  for (std::size_t rank = 0; rank < span_->ranks(); ++rank) {
    const float* from = chunk(rank) + at.offset + channel;
    all.first += static_cast<double>(from[0]);
    all.second += static_cast<double>(from[at.count / 2]);
  }
  return all;
}

}  // namespace lockstep::cpu
