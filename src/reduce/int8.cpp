#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/arena.hpp"
#include "reduce/narrow.hpp"

namespace lockstep::reduce {
namespace {

using backend::scales_of;
using backend::Vector;
using backend::arithmetic::scale_block;
using comm::ElementType;

/// Buckets between the two hops of a bucket.
constexpr std::size_t lag = 2;

/// Numbers of each of `world` equal chunks that hold `count`: whole blocks of a scale.
std::size_t chunk_size(std::size_t count, std::size_t world) {
  const std::size_t each = scales_of(count);
  return (each + world - 1) / world * scale_block;
}

std::string rank_key(int rank) { return fmt::format("rank-{}", rank); }

float* floats(const backend::DeviceMemory& memory) {
  return reinterpret_cast<float*>(memory.get());
}

}  // namespace

std::size_t int8_bytes(std::size_t numbers, std::size_t world) {
  const std::size_t moved = chunk_size(numbers, world) * world;
  const std::size_t with_scales = moved + scales_of(moved) * sizeof(float);
  return 2 * with_scales + half_bytes(numbers) + half_bytes(moved / world);
}

Int8Exchange::Int8Exchange(ExchangeSpec spec, const ExchangeParts& parts)
    : NarrowExchange(spec, parts) {
  check(world() > 1 && !spec.loss_scale, "int8 needs several ranks and gradients without a scale");
  for (std::size_t b = 0; b < filling_.buckets().size(); ++b) {
    const std::size_t numbers = learned(b), chunk = chunk_size(numbers, world());
    const std::size_t all = chunk * world(), scales = scales_of(all) * sizeof(float);
    Part part{.numbers = numbers, .chunk = chunk};
    part.sent = vectors_.allocate(all, "gradients as int8");
    part.came = vectors_.allocate(all, "gradients as int8 of other ranks");
    part.sent_scales = vectors_.allocate(scales, "scales of int8");
    part.came_scales = vectors_.allocate(scales, "scales of int8 of other ranks");
    part.error = vectors_.allocate(half_bytes(numbers), "what int8 left out of gradients");
    part.sum_error = vectors_.allocate(half_bytes(chunk), "what int8 left out of sums");
    buckets_.push_back(std::move(part));
  }
}

std::string Int8Exchange::note() const {
  return fmt::format(
      "gradients travel as int8 with a scale for each {} and running statistics as fp32; what "
      "rounding leaves out is added in the next step",
      scale_block);
}

void Int8Exchange::begin() {
  NarrowExchange::begin();
  added_ = 0;
}

std::size_t Int8Exchange::size(const Part& part, std::size_t chunk) const {
  const std::size_t first = std::min(chunk * part.chunk, part.numbers);
  return std::min(part.chunk, part.numbers - first);
}

Vector Int8Exchange::chunk_of(const Part& part, bool came, std::size_t chunk) const {
  return {(came ? part.came : part.sent).get() + chunk * part.chunk, size(part, chunk),
          ElementType::i8,
          floats(came ? part.came_scales : part.sent_scales) + scales_of(chunk * part.chunk)};
}

/// values + error becomes `rounded` and the next error; `values` is used up.
void Int8Exchange::round(const Vector& values, const Vector& rounded, const Vector& error) {
  if (values.count == 0) return;
  vectors_.add(1, error, values);
  vectors_.cast(values, rounded);
  vectors_.add(-1, rounded, values);
  vectors_.cast(values, error);
}

void Int8Exchange::start(std::size_t bucket) {
  Part& part = buckets_[bucket];
  const Vector all{part.sent.get(), part.numbers, ElementType::i8, floats(part.sent_scales)};
  round(gradients(bucket, 0, part.numbers), all,
        {part.error.get(), part.numbers, ElementType::bf16, nullptr});
  network().wait(*compute().record());  // what is sent precedes its sending
  trade(bucket);
  sum_statistics(bucket);
  part.arrived = network().record();
  for (; added_ + lag <= bucket; ++added_) add_up(added_);
}

/// The first hop: chunk r goes to rank r.
void Int8Exchange::trade(std::size_t bucket) {
  Part& part = buckets_[bucket];
  const std::string name = fmt::format("bucket {}", bucket);
  const std::size_t scales = scales_of(part.chunk);
  comm::Communicator& ranks = parts_.communicator;
  ranks.together([&] {
    for (std::size_t distance = 1; distance < world() && part.chunk > 0; ++distance) {
      const std::size_t mine = static_cast<std::size_t>(rank());
      const std::size_t to = (mine + distance) % world();
      const std::size_t from = (mine + world() - distance) % world();
      const auto ints = [&](const backend::DeviceMemory& of, std::size_t chunk) {
        return comm::Elements{of.get() + chunk * part.chunk, part.chunk, ElementType::i8};
      };
      const auto factors = [&](const backend::DeviceMemory& of, std::size_t chunk) {
        return comm::elements(floats(of) + chunk * scales, scales);
      };
      ranks.send(ints(part.sent, to), static_cast<int>(to), name, network());
      ranks.send(factors(part.sent_scales, to), static_cast<int>(to), name, network());
      ranks.receive(ints(part.came, from), static_cast<int>(from), name, network());
      ranks.receive(factors(part.came_scales, from), static_cast<int>(from), name, network());
    }
  });
}

/// The second hop: this rank's chunk of the sum goes to all.
void Int8Exchange::add_up(std::size_t bucket) {
  Part& part = buckets_[bucket];
  const std::size_t mine = static_cast<std::size_t>(rank()), count = size(part, mine);
  const Vector sum = gradients(bucket, std::min(mine * part.chunk, part.numbers), count);
  compute().wait(*part.arrived);  // the parts precede their sum
  for (std::size_t r = 0; r < world() && count > 0; ++r) {
    const Vector theirs = chunk_of(part, r != mine, r == mine ? mine : r);
    const Vector given{theirs.data, count, theirs.type, theirs.scales};
    r == 0 ? vectors_.cast(given, sum) : vectors_.add(1, given, sum);
  }
  round(sum, chunk_of(part, false, mine),
        {part.sum_error.get(), count, ElementType::bf16, nullptr});
  network().wait(*compute().record());  // the sum precedes its sending
  const std::size_t all = part.chunk * world();
  const std::string name = fmt::format("bucket {}, sums", bucket);
  comm::Communicator& ranks = parts_.communicator;
  ranks.all_gather({part.sent.get(), all, ElementType::i8}, name, network());
  ranks.all_gather(comm::elements(floats(part.sent_scales), scales_of(all)), name, network());
  part.done = network().record();
}

void Int8Exchange::finish(std::size_t bucket) {
  const std::size_t next = std::min(bucket + lag, buckets_.size());
  for (; added_ < next; ++added_) add_up(added_);
  const Part& part = buckets_[bucket];
  compute().wait(*part.done);  // the bucket's sum precedes its update
  if (part.numbers == 0) return;
  vectors_.cast({part.sent.get(), part.numbers, ElementType::i8, floats(part.sent_scales)},
                gradients(bucket, 0, part.numbers));
}

/// What one rank's bytes in a checkpoint hold, in order.
std::vector<Vector> Int8Exchange::errors() const {
  std::vector<Vector> all;
  const std::size_t mine = static_cast<std::size_t>(rank());
  for (const Part& part : buckets_) {
    all.push_back({part.error.get(), part.numbers, ElementType::bf16, nullptr});
    all.push_back({part.sum_error.get(), size(part, mine), ElementType::bf16, nullptr});
  }
  return all;
}

ExchangeState Int8Exchange::save(comm::Control& control) const {
  std::string mine;
  for (const Vector& error : errors()) {
    const std::size_t at = mine.size(), bytes = half_bytes(error.count);
    mine.resize(at + bytes);
    vectors_.read(error.data, std::as_writable_bytes(std::span(mine)).subspan(at));
  }
  ExchangeState state;
  const std::vector<std::string> all = control.gather_at_root(mine, "the exchange's state");
  for (std::size_t r = 0; r < all.size(); ++r) state[rank_key(static_cast<int>(r))] = all[r];
  return state;
}

void Int8Exchange::load(const ExchangeState& state) {
  require(state.size() == world(),
          fmt::format("the state of the exchange '{}' is of {} ranks, and here are {}: continue "
                      "with {} ranks, or begin a run with --init",
                      name(), state.size(), world(), state.size()));
  std::size_t bytes = 0;
  for (const Vector& error : errors()) bytes += half_bytes(error.count);
  const auto mine = state.find(rank_key(rank()));
  require(mine != state.end() && mine->second.size() == bytes,
          fmt::format("the state of the exchange '{}' is of another network or other buckets "
                      "(comm.bucket-mb)",
                      name()));
  std::span<const std::byte> left = std::as_bytes(std::span(mine->second));
  for (const Vector& error : errors()) {
    vectors_.write(left.first(half_bytes(error.count)), error.data);
    left = left.subspan(half_bytes(error.count));
  }
}

}  // namespace lockstep::reduce
