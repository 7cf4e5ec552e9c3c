#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/arena.hpp"
#include "reduce/narrow.hpp"
#include "reduce/packed_vectors.hpp"

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

constexpr const char* buckets_key = "buckets";

Vector halves(const backend::DeviceMemory& memory, std::size_t count) {
  return {memory.get(), count, ElementType::bf16, nullptr};
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
  for (std::size_t b = 0; b < buckets().size(); ++b) {
    const std::size_t numbers = learned(b), chunk = chunk_size(numbers, world());
    Part part{.numbers = numbers, .chunk = chunk};
    part.sent = allocate(chunk * world(), "gradients as int8");
    part.came = allocate(chunk * world(), "gradients as int8 of other ranks");
    part.error = vectors_.allocate(half_bytes(numbers), "what int8 left out of gradients");
    part.sum_error = vectors_.allocate(half_bytes(chunk), "what int8 left out of sums");
    parts_of_buckets_.push_back(std::move(part));
  }
}

Int8Exchange::Ints Int8Exchange::allocate(std::size_t count, const std::string& what) {
  return {vectors_.allocate(count, what),
          vectors_.allocate(scales_of(count) * sizeof(float), "scales of " + what)};
}

Vector Int8Exchange::of(const Ints& ints, std::size_t first, std::size_t count) {
  return {ints.values.get() + first, count, ElementType::i8,
          reinterpret_cast<float*>(ints.scales.get()) + scales_of(first)};
}

std::string Int8Exchange::note() const {
  return fmt::format(
      "gradients travel as int8 with a scale for each {} and running statistics as fp32; what "
      "rounding leaves out is added in the next step",
      scale_block);
}

void Int8Exchange::begin() {
  BucketExchange::begin();
  added_ = 0;
}

/// Numbers of this rank's chunk.
std::size_t Int8Exchange::owned(const Part& part) const {
  return std::min(part.chunk, part.numbers - std::min(rank() * part.chunk, part.numbers));
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
  Part& part = parts_of_buckets_[bucket];
  round(gradients(bucket, 0, part.numbers), of(part.sent, 0, part.numbers),
        halves(part.error, part.numbers));
  network().wait(*compute().record());  // what is sent precedes its sending
  trade(part, fmt::format("bucket {}", bucket));
  sum_statistics(bucket);
  part.arrived = network().record();
  for (; added_ + lag <= bucket; ++added_) add_up(added_);
}

/// The first hop: chunk r goes to rank r.
void Int8Exchange::trade(const Part& part, const std::string& name) {
  if (part.chunk == 0) return;
  const auto chunk = [&](const Ints& ints, std::size_t r) {
    return of(ints, r * part.chunk, part.chunk);
  };
  const std::size_t scales = scales_of(part.chunk);
  communicator_.together([&] {
    for (std::size_t distance = 1; distance < world(); ++distance) {
      const std::size_t to = (rank() + distance) % world();
      const std::size_t from = (rank() + world() - distance) % world();
      const Vector given = chunk(part.sent, to), taken = chunk(part.came, from);
      communicator_.send(given.elements(), static_cast<int>(to), name, network());
      communicator_.send(comm::elements(given.scales, scales), static_cast<int>(to), name,
                         network());
      communicator_.receive(taken.elements(), static_cast<int>(from), name, network());
      communicator_.receive(comm::elements(taken.scales, scales), static_cast<int>(from), name,
                            network());
    }
  });
}

/// The second hop: this rank's chunk of the sum goes to all.
void Int8Exchange::add_up(std::size_t bucket) {
  Part& part = parts_of_buckets_[bucket];
  const std::size_t count = owned(part), first = rank() * part.chunk;
  const Vector sum = gradients(bucket, std::min(first, part.numbers), count);
  compute().wait(*part.arrived);  // the parts precede their sum
  for (std::size_t r = 0; r < world() && count > 0; ++r) {
    const Vector given = of(r == rank() ? part.sent : part.came, r * part.chunk, count);
    r == 0 ? vectors_.cast(given, sum) : vectors_.add(1, given, sum);
  }
  round(sum, of(part.sent, first, count), halves(part.sum_error, count));
  network().wait(*compute().record());  // the sum precedes its sending
  const Vector all = of(part.sent, 0, part.chunk * world());
  const std::string name = fmt::format("bucket {}, sums", bucket);
  communicator_.all_gather(all.elements(), name, network());
  communicator_.all_gather(comm::elements(all.scales, scales_of(all.count)), name, network());
  part.done = network().record();
}

void Int8Exchange::finish(std::size_t bucket) {
  const std::size_t next = std::min(bucket + lag, parts_of_buckets_.size());
  for (; added_ < next; ++added_) add_up(added_);
  const Part& part = parts_of_buckets_[bucket];
  compute().wait(*part.done);  // the bucket's sum precedes its update
  if (part.numbers == 0) return;
  vectors_.cast(of(part.sent, 0, part.numbers), gradients(bucket, 0, part.numbers));
}

/// What one rank's bytes in a checkpoint hold, in order.
std::vector<Vector> Int8Exchange::errors() const {
  std::vector<Vector> all;
  for (const Part& part : parts_of_buckets_) {
    all.push_back(halves(part.error, part.numbers));
    all.push_back(halves(part.sum_error, owned(part)));
  }
  return all;
}

/// How many numbers each bucket has: the place of each error follows from that.
std::string Int8Exchange::describe_buckets() const {
  std::string all;
  for (const Part& part : parts_of_buckets_) all += fmt::format("{} ", part.numbers);
  return all;
}

ExchangeState Int8Exchange::save(comm::Control& control) const {
  ExchangeState state = gather_state(control, rank_key(rank()), packed(vectors_, errors()));
  if (control.rank() == 0) state[buckets_key] = describe_buckets();
  return state;
}

std::string Int8Exchange::load(const SavedState& state) {
  constexpr std::string_view left_out = "what int8 had left out";
  const std::size_t saved_by = state.count(rank_prefix);
  if (saved_by != world()) return of_others(left_out, saved_by, "ranks", world());
  if (state.find(buckets_key) != describe_buckets())
    return fmt::format("{} (of other buckets: comm.bucket-mb)", left_out);
  const auto mine = state.find(rank_key(rank()));
  require(mine && unpack(vectors_, *mine, errors()),
          fmt::format("the state of the exchange '{}' is of another network", name()));
  return "";
}

}  // namespace lockstep::reduce
