#include "reduce/narrow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/arena.hpp"

namespace lockstep::reduce {

using backend::Part;
using backend::Vector;

NarrowExchange::NarrowExchange(ExchangeSpec spec, const ExchangeParts& parts)
    : BucketExchange(std::move(spec), parts.communicator),
      parts_(parts),
      vectors_(parts.backend.vectors()),
      arrived_(buckets().size()),
      done_(buckets().size()) {}

void NarrowExchange::begin() {
  BucketExchange::begin();
  sent_again_ = 0;
}

void NarrowExchange::start(std::size_t bucket) {
  send(bucket);
  const bool two = has_second_hop();
  (two ? arrived_ : done_)[bucket] = network().record();
  if (two) send_again_below(bucket + 1 - std::min(bucket + 1, hops_apart));
}

void NarrowExchange::finish(std::size_t bucket) {
  if (has_second_hop()) send_again_below(std::min(bucket + hops_apart, buckets().size()));
  compute().wait(*done_[bucket]);  // the bucket's sum precedes its update
  take(bucket);
}

void NarrowExchange::send_again_below(std::size_t bucket) {
  for (; sent_again_ < bucket; ++sent_again_) {
    compute().wait(*arrived_[sent_again_]);  // what came precedes its use
    send_again(sent_again_);
    done_[sent_again_] = network().record();
  }
}

std::size_t NarrowExchange::learned(std::size_t bucket) const {
  const Bucket& of = buckets()[bucket];
  const std::size_t end = parts_.parameters.layout().learned_size;
  return std::min(of.size, end - std::min(of.offset, end));
}

Vector NarrowExchange::gradients(std::size_t bucket, std::size_t first, std::size_t count) const {
  float* arena = parts_.parameters.device_pointer(Part::gradients);
  return backend::vector(arena + buckets()[bucket].offset + first, count);
}

void NarrowExchange::sum_statistics(std::size_t bucket) {
  const std::size_t first = learned(bucket), count = buckets()[bucket].size - first;
  communicator_.all_reduce(gradients(bucket, first, count).elements(), comm::Reduction::sum,
                           fmt::format("bucket {}, statistics", bucket), network());
}

// ---- 16 bits ------------------------------------------------------------------------------------

namespace {

constexpr float fp16_factor = 256;

}  // namespace

HalfExchange::HalfExchange(ExchangeSpec spec, const ExchangeParts& parts)
    : NarrowExchange(spec, parts),
      type_(spec.kind == ExchangeKind::bf16 ? comm::ElementType::bf16 : comm::ElementType::f16),
      factor_(spec.kind == ExchangeKind::fp16 && !spec.loss_scale ? fp16_factor : 1),
      sums_(vectors_.allocate(half_bytes(parts.parameters.layout().learned_size),
                              "gradients of 16 bits")) {}

std::string HalfExchange::note() const {
  return fmt::format("gradients travel as {}, and running statistics as fp32", name());
}

Vector HalfExchange::narrow(std::size_t bucket) const {
  return {sums_.get() + half_bytes(buckets()[bucket].offset), learned(bucket), type_, nullptr};
}

void HalfExchange::send(std::size_t bucket) {
  const Vector wide = gradients(bucket, 0, learned(bucket));
  if (world() > 1 && wide.count > 0) {
    if (factor_ != 1) vectors_.scale(factor_, wide);
    vectors_.cast(wide, narrow(bucket));
  }
  network().wait(*compute().record());  // the bucket's last gradient precedes its sum
  communicator_.all_reduce(narrow(bucket).elements(), comm::Reduction::sum,
                           fmt::format("bucket {}", bucket), network());
  sum_statistics(bucket);
}

void HalfExchange::take(std::size_t bucket) {
  const Vector wide = gradients(bucket, 0, learned(bucket));
  if (world() == 1 || wide.count == 0) return;
  vectors_.cast(narrow(bucket), wide);
  if (factor_ != 1) vectors_.scale(1 / factor_, wide);
}

}  // namespace lockstep::reduce
