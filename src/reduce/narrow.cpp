#include "reduce/narrow.hpp"

#include <fmt/format.h>

namespace lockstep::reduce {

using backend::Vector;

namespace {

constexpr float fp16_factor = 256;

}  // namespace

HalfExchange::HalfExchange(ExchangeSpec spec, const ExchangeParts& parts)
    : HopExchange(spec, parts),
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
