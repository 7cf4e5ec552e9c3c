#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/arena.hpp"
#include "reduce/narrow.hpp"
#include "reduce/plain_state.hpp"

namespace lockstep::reduce {
namespace {

using backend::scales_of;
using backend::Vector;
using backend::arithmetic::scale_block;
using comm::ElementType;

/// Numbers of each of `world` equal chunks that hold `count`: whole blocks of a scale.
std::size_t chunk_size(std::size_t count, std::size_t world) {
  const std::size_t each = scales_of(count);
  return (each + world - 1) / world * scale_block;
}

constexpr const char* sums_key = "sums";

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
    : HopExchange(spec, parts) {
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

void Int8Exchange::send(std::size_t bucket) {
  const Part& part = parts_of_buckets_[bucket];
  round(gradients(bucket, 0, part.numbers), of(part.sent, 0, part.numbers),
        halves(part.error, part.numbers));
  network().wait(*compute().record());  // what is sent precedes its sending
  trade(part, fmt::format("bucket {}", bucket));
  sum_statistics(bucket);
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
void Int8Exchange::send_again(std::size_t bucket) {
  const Part& part = parts_of_buckets_[bucket];
  const std::size_t count = owned(part), first = rank() * part.chunk;
  const Vector sum = gradients(bucket, std::min(first, part.numbers), count);
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
}

void Int8Exchange::take(std::size_t bucket) {
  const Part& part = parts_of_buckets_[bucket];
  if (part.numbers == 0) return;
  vectors_.cast(of(part.sent, 0, part.numbers), gradients(bucket, 0, part.numbers));
}

/// What rounding left out of this rank's gradients.
std::vector<ArenaPart> Int8Exchange::errors() const {
  const auto each = [this](bool gives) {
    for (std::size_t b = 0; b < buckets().size(); ++b) {
      const Part& part = parts_of_buckets_[b];
      const Vector error = halves(part.error, part.numbers);
      const Vector place = gradients(b, 0, part.numbers);
      if (part.numbers > 0) gives ? vectors_.cast(error, place) : vectors_.cast(place, error);
    }
  };
  return {{.slices = parts_.parameters.layout().learned_slices,
           .half = true,
           .give = [each] { each(true); },
           .take = [each] { each(false); }}};
}

/// Calls work(what rounding left out of a sum that this rank owns, its place in the gradients).
void Int8Exchange::for_sum_errors(
    const std::function<void(const Vector&, const Vector&)>& work) const {
  for (std::size_t b = 0; b < buckets().size(); ++b) {
    const Part& part = parts_of_buckets_[b];
    if (const std::size_t count = owned(part); count > 0)
      work(halves(part.sum_error, count), gradients(b, rank() * part.chunk, count));
  }
}

/// The gradients become those of all ranks: each number has one owner.
void Int8Exchange::gather_sum_errors() const {
  const nn::ArenaLayout& layout = parts_.parameters.layout();
  std::vector<float> zeros;
  for (std::size_t s = 0; s < layout.learned_slices; ++s) {
    zeros.assign(layout.slices[s].tensor.count(), 0);
    parts_.parameters.import_slice(backend::Part::gradients, s, zeros);
  }
  for_sum_errors([this](const Vector& error, const Vector& place) { vectors_.cast(error, place); });
  network().wait(*compute().record());  // the numbers precede their sum
  communicator_.all_reduce(
      backend::vector(parts_.parameters.device_pointer(backend::Part::gradients),
                      layout.learned_size)
          .elements(),
      comm::Reduction::sum, "what int8 left out of sums", network());
  const comm::Waiting waiting(communicator_.activity);
  compute().wait(*network().record());  // the sum precedes its use
}

/// What rounding left out of the sums, which is the same for any number of ranks and any buckets.
/// REQUIRES: gather_sum_errors(), to give it.
std::vector<ArenaPart> Int8Exchange::sum_errors() const {
  return {{.slices = parts_.parameters.layout().learned_slices,
           .half = true,
           .give = [] {},
           .take =
               [this] {
                 for_sum_errors([this](const Vector& error, const Vector& place) {
                   vectors_.cast(place, error);
                 });
               }}};
}

StateOutline Int8Exchange::outline() const {
  const nn::ArenaLayout& layout = parts_.parameters.layout();
  StateOutline state;
  for (std::size_t r = 0; r < world(); ++r)
    state.parts.push_back({rank_key(r), plain_bytes(layout, errors())});
  state.parts.push_back({sums_key, plain_bytes(layout, sum_errors())});
  return state;
}

void Int8Exchange::save(comm::Control& control, const TakeBytes& take) const {
  for (std::size_t r = 0; r < world(); ++r) {
    save_plain(parts_, static_cast<int>(r), errors(), take);
    next_part(control);
  }
  gather_sum_errors();
  save_plain(parts_, 0, sum_errors(), take);
}

std::string Int8Exchange::load(const SavedState& state) {
  constexpr std::string_view left_out = "what int8 had left out";
  if (is_unordered(state)) return of_older(left_out);
  const auto fits = [&](const std::string& name_of_part, const std::vector<ArenaPart>& all) {
    require(load_plain(parts_, state, name_of_part, all),
            fmt::format("the state of the exchange '{}' is of another network", name()));
  };
  fits(sums_key, sum_errors());
  const std::size_t saved_by = state.parts(rank_prefix);
  if (saved_by != world()) return of_others(left_out, saved_by, "ranks", world());
  fits(rank_key(rank()), errors());
  return "";
}

}  // namespace lockstep::reduce
