#include "reduce/hops.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/nn/arena.hpp"

namespace lockstep::reduce {

using backend::Part;
using backend::Vector;

HopExchange::HopExchange(ExchangeSpec spec, const ExchangeParts& parts)
    : BucketExchange(std::move(spec), parts.communicator),
      parts_(parts),
      vectors_(parts.backend.vectors()),
      arrived_(buckets().size()),
      done_(buckets().size()) {}

void HopExchange::begin() {
  BucketExchange::begin();
  sent_again_ = 0;
}

void HopExchange::start(std::size_t bucket) {
  send(bucket);
  const bool two = has_second_hop();
  (two ? arrived_ : done_)[bucket] = network().record();
  if (two) send_again_below(bucket + 1 - std::min(bucket + 1, hops_apart));
}

void HopExchange::finish(std::size_t bucket) {
  if (has_second_hop()) send_again_below(std::min(bucket + hops_apart, buckets().size()));
  compute().wait(*done_[bucket]);  // the bucket's sum precedes its update
  take(bucket);
}

void HopExchange::send_again_below(std::size_t bucket) {
  for (; sent_again_ < bucket; ++sent_again_) {
    compute().wait(*arrived_[sent_again_]);  // what came precedes its use
    send_again(sent_again_);
    done_[sent_again_] = network().record();
  }
}

std::size_t HopExchange::learned(std::size_t bucket) const {
  const Bucket& of = buckets()[bucket];
  const std::size_t end = parts_.parameters.layout().learned_size;
  return std::min(of.size, end - std::min(of.offset, end));
}

Vector HopExchange::gradients(std::size_t bucket, std::size_t first, std::size_t count) const {
  float* arena = parts_.parameters.device_pointer(Part::gradients);
  return backend::vector(arena + buckets()[bucket].offset + first, count);
}

void HopExchange::sum_statistics(std::size_t bucket) {
  const std::size_t first = learned(bucket), count = buckets()[bucket].size - first;
  communicator_.all_reduce(gradients(bucket, first, count).elements(), comm::Reduction::sum,
                           fmt::format("bucket {}, statistics", bucket), network());
}

}  // namespace lockstep::reduce
