// Why a slice waits for two gradients. A bucket is ready when the weight and the data gradients of
// its slices have run: an update must not overwrite weights that a data gradient still reads.
//
// Why fp16 updates at once. All reduced buckets are checked for overflow before one update. In
// other precisions a bucket is updated as it arrives. Clipping (`optim.clip-norm`) waits for all
// buckets, too: it needs the norm of all gradients.
#include "reduce/exact.hpp"

#include <fmt/core.h>

#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::reduce {

ExactExchange::ExactExchange(ExchangeSpec spec, comm::Communicator& communicator,
                             device::Stream& compute, float* gradients)
    : communicator_(communicator),
      compute_(compute),
      gradients_(gradients),
      update_at_once_(spec.update_at_once),
      filling_(std::move(spec.buckets)) {
  begin();
}

std::string ExactExchange::name() const { return choice_name(ExchangeKind::exact); }

void ExactExchange::begin() {
  filling_.begin();
  done_.clear();
  done_.resize(buckets().size());
}

void ExactExchange::ready(std::size_t slice) {
  filling_.ready(slice, [this](std::size_t number) {
    const Bucket& bucket = buckets()[number];
    device::Stream& network = communicator_.network();
    network.wait(*compute_.record());  // the bucket's last gradient precedes its reduction
    communicator_.all_reduce(comm::elements(gradients_ + bucket.offset, bucket.size),
                             comm::Reduction::sum, fmt::format("bucket {}", number), network);
    done_[number] = network.record();
  });
}

void ExactExchange::progress() { communicator_.progress(); }

void ExactExchange::wait(std::size_t bucket) {
  filling_.require_started(bucket);
  const comm::Waiting waiting(communicator_.activity, bucket,
                              buckets()[bucket].size * sizeof(float));
  compute_.wait(*done_[bucket]);  // the bucket's reduction precedes its update
}

}  // namespace lockstep::reduce
