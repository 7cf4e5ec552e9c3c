#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/backend/norm_span.hpp"

namespace lockstep::cpu {

/// What the ranks of a span tell each other before a region runs: of each batch norm that begins
/// there, two numbers for each channel, and once how many rows the rank has; and of tiles what the
/// head averages. It is sent between two barriers of the lanes. Without any it does nothing.
class NormMessage {
 public:
  /// Writes this rank's numbers of the channels [begin, end): to `first` and `second`, by channel.
  using Tell = std::function<void(std::size_t begin, std::size_t end, float* first, float* second)>;

  /// While planning: a batch norm takes part. Returns its place in the message.
  std::size_t add(std::size_t channels, const Tell& tell);
  /// The same for other numbers: a lane writes its part of `count` of them.
  using TellFloats = std::function<void(std::size_t lane, std::size_t lanes, float* to)>;
  std::size_t add_floats(std::size_t count, TellFloats tell);
  /// Once all have been added. `name` is what errors call it.
  void plan(backend::NormSpan& span, std::string name);

  bool empty() const { return places_.empty(); }
  /// Every lane calls it; then the main thread calls send().
  void tell(std::size_t lane, std::size_t lanes);
  void send(std::size_t rows);
  /// In place of both on a rank without rows.
  void join();

  /// What came from all ranks, until the next message: in the order of the ranks, so that all of
  /// them get the same bits. `values`: of one row in one channel, by rank.
  backend::SampleMoments moments(std::size_t place, std::size_t channel,
                                 const std::vector<std::size_t>& values) const;
  struct Sums {
    double first = 0, second = 0;
  };
  Sums sums(std::size_t place, std::size_t channel) const;
  const float* floats(std::size_t place, std::size_t rank) const {
    return chunk(rank) + places_[place].offset;
  }

  /// A place in a message; null where nothing is told.
  struct Told {
    const NormMessage* message = nullptr;
    std::size_t place = 0;
  };

 private:
  struct Place {
    std::size_t count, offset;  // in floats
    TellFloats tell;
  };
  float* chunk(std::size_t rank) { return chunks_.data() + rank * size_; }
  const float* chunk(std::size_t rank) const { return chunks_.data() + rank * size_; }

  backend::NormSpan* span_ = nullptr;
  std::string name_;
  std::vector<Place> places_;
  std::size_t size_ = 1;  // of a rank's chunk: its rows come first
  std::vector<float> chunks_;
};

}  // namespace lockstep::cpu
