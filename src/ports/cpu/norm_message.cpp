#include "ports/cpu/norm_message.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::cpu {

using backend::SampleMoments;

std::size_t NormMessage::add(std::size_t channels, Tell tell) {
  places_.push_back({channels, size_, std::move(tell)});
  size_ += 2 * channels;
  return places_.size() - 1;
}

void NormMessage::plan(backend::NormSpan& span, std::string name) {
  span_ = &span;
  name_ = std::move(name);
  chunks_.resize(span.ranks() * size_);
}

void NormMessage::tell(std::size_t lane, std::size_t lanes) {
  float* mine = chunk(span_->rank());
  for (const Place& place : places_) {
    const std::size_t n = place.channels;
    place.tell(n * lane / lanes, n * (lane + 1) / lanes, mine + place.offset,
               mine + place.offset + n);
  }
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
                                   std::size_t values) const {
  const Place& at = places_[place];
  SampleMoments all;
  for (std::size_t rank = 0; rank < span_->ranks(); ++rank) {
    const float* from = chunk(rank) + at.offset + channel;
    all = merged(all, {.count = static_cast<double>(*chunk(rank)) * static_cast<double>(values),
                       .mean = from[0],
                       .squares = from[at.channels]});
  }
  return all;
}

NormMessage::Sums NormMessage::sums(std::size_t place, std::size_t channel) const {
  const Place& at = places_[place];
  Sums all;
  for (std::size_t rank = 0; rank < span_->ranks(); ++rank) {
    const float* from = chunk(rank) + at.offset + channel;
    all.first += static_cast<double>(from[0]);
    all.second += static_cast<double>(from[at.channels]);
  }
  return all;
}

}  // namespace lockstep::cpu
