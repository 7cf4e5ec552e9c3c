#include "reduce/exact.hpp"

#include <fmt/core.h>

#include <utility>

namespace lockstep::reduce {

ExactExchange::ExactExchange(ExchangeSpec spec, comm::Communicator& communicator,
                             device::Stream& compute, float* gradients)
    : BucketExchange(std::move(spec), communicator),
      compute_(compute),
      gradients_(gradients),
      done_(buckets().size()) {}

void ExactExchange::start(std::size_t number) {
  const Bucket& bucket = buckets()[number];
  device::Stream& network = communicator_.network();
  network.wait(*compute_.record());  // the bucket's last gradient precedes its sum
  communicator_.all_reduce(comm::elements(gradients_ + bucket.offset, bucket.size),
                           comm::Reduction::sum, fmt::format("bucket {}", number), network);
  done_[number] = network.record();
}

void ExactExchange::finish(std::size_t bucket) {
  compute_.wait(*done_[bucket]);  // the bucket's sum precedes its update
}

}  // namespace lockstep::reduce
