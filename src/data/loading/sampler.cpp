#include "lockstep/data/loading/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/base/share.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t feistel_rounds =
    8;  // even, so that the halves end with the widths they began with

// Any function of (half, key) makes the network a bijection; a good one makes it look random. This
// is the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
// generators", OOPSLA'14).
std::uint64_t mix(std::uint64_t half, std::uint32_t key) {
  std::uint64_t z = half ^ (static_cast<std::uint64_t>(key) << 32);
  z = (z + 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 31)) * 0x94D049BB133111EBull;
  return z ^ (z >> 32);
}

// A Feistel network on `bits` bits: each round swaps the halves after one was xored with a function
// of the other, which can be undone, so no two inputs meet. Halves may differ by one bit in width.
std::uint64_t feistel(std::uint64_t value, unsigned bits,
                      const std::uint32_t (&keys)[feistel_rounds]) {
  unsigned low_bits = bits / 2, high_bits = bits - low_bits;
  std::uint64_t low = value & ((1ull << low_bits) - 1), high = value >> low_bits;
  for (const std::uint32_t key : keys) {
    high ^= mix(low, key) & ((1ull << high_bits) - 1);
    std::swap(low, high);
    std::swap(low_bits, high_bits);
  }
  return high << low_bits | low;
}

/// The place of `index` in a permutation of [0, size) that the other three arguments choose: keyed,
/// without a table, O(1).
std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t seed,
                       std::uint64_t epoch, std::uint64_t stream) {
  if (size <= 1) return index;
  const auto bits = static_cast<unsigned>(std::bit_width(size - 1));
  const Philox a = draw4(seed, epoch, 2 * stream, Draw::shuffle);
  const Philox b = draw4(seed, epoch, 2 * stream + 1, Draw::shuffle);
  const std::uint32_t keys[feistel_rounds] = {a.word[0], a.word[1], a.word[2], a.word[3],
                                              b.word[0], b.word[1], b.word[2], b.word[3]};
  // Cycle walking: the network permutes [0, 2^bits). Following it from an index until it returns to
  // [0, size) gives a permutation of that. 2^bits < 2 * size, so on average it takes two steps at
  // most.
  std::uint64_t at = index;
  do {
    at = feistel(at, bits, keys);
  } while (at >= size);
  return at;
}

}  // namespace

namespace {

// The permutations of an epoch each have a separate stream. Those of windows and nodes follow.
constexpr std::uint64_t row_stream = 0, block_stream = 1, part_stream = 2, short_stream = 3,
                        first_other_stream = 8;
constexpr std::uint64_t epochs_of_draws = std::uint64_t{1} << 24;  // that draw4() tells apart
constexpr std::uint64_t windows_of_replica = std::uint64_t{1} << 32;

}  // namespace

namespace {

/// base^exponent, for an exponent from 0 to 1, by square roots: unlike pow's, their bits are the
/// same on every machine.
double power(double base, double exponent) {
  if (exponent >= 1) return base;
  double result = 1;
  for (int bit = 0; bit < 24; ++bit) {
    base = std::sqrt(base);
    exponent *= 2;
    if (exponent < 1) continue;
    result *= base;
    exponent -= 1;
  }
  return result;
}

}  // namespace

std::shared_ptr<const ClassBalance> balance_classes(std::span<const std::int32_t> labels,
                                                    std::size_t classes, float evenness) {
  auto balance = std::make_shared<ClassBalance>();
  balance->begin.assign(classes + 1, 0);
  for (const std::int32_t label : labels) ++balance->begin.at(static_cast<std::size_t>(label) + 1);
  std::vector<double> until(classes + 1, 0);  // shares, not yet divided by their sum
  for (std::size_t c = 0; c < classes; ++c) {
    const std::size_t rows = balance->begin[c + 1];
    until[c + 1] =
        until[c] + (rows > 0 ? power(static_cast<double>(rows), 1 - double{evenness}) : 0);
    balance->begin[c + 1] += balance->begin[c];
  }
  balance->rows.resize(labels.size());
  std::vector<std::size_t> next(balance->begin.begin(), balance->begin.end() - 1);
  for (std::size_t row = 0; row < labels.size(); ++row)
    balance->rows[next[static_cast<std::size_t>(labels[row])]++] = row;
  for (const double share : until)
    balance->places.push_back(static_cast<std::size_t>(
        std::llround(share / until.back() * static_cast<double>(labels.size()))));
  for (std::size_t c = 0; c < classes; ++c)
    if (const std::size_t rows = balance->rows_of(c); rows > 0)
      balance->most_visits =
          std::max<std::uint64_t>(balance->most_visits, (balance->places_of(c) + rows - 1) / rows);
  return balance;
}

Sampler::Sampler(const SamplerSpec& spec) : spec_(spec) {
  check(spec.replica >= 0 && spec.taken > 0 && spec.replica + spec.taken <= spec.replicas,
        "one of the replicas");
  check(spec.block > 0 && spec.window > 0, "blocks and windows of one at least");
  check(
      !spec.balance || (spec.shuffle == Shuffle::global && spec.balance->rows.size() == spec.rows),
      "a balance of the same rows, which are all mixed");
  const auto replicas = static_cast<std::size_t>(spec.replicas);
  require(spec.rows > 0, "the data set has no rows");
  require(replicas <= spec.rows || spec.shuffle == Shuffle::none,
          fmt::format("{} are more than the {} rows of the data set; {}",
                      counted(replicas, spec.taken > 1 ? "shard" : "rank"), spec.rows,
                      spec.taken > 1 ? "use fewer" : "start fewer ranks"));
  require(spec.global_batch >= replicas,
          fmt::format("a global batch of {} rows cannot be shared by {} ranks: each needs a row; "
                      "make the batch larger or start fewer ranks",
                      spec.global_batch, replicas));
  require(batches() > 0,
          fmt::format("a global batch of {} rows is larger than the data set's {}, and the last "
                      "uneven batch is dropped: no step would remain; make the batch smaller "
                      "(--batch) or keep the last one (--data.keep-last)",
                      spec.global_batch, spec.rows));
  batches_ = spec.rows / spec.global_batch;
  if (spec_.nodes.empty()) spec_.nodes.assign(replicas, 0);
  check(spec_.nodes.size() == replicas, "a node for each replica");
  const auto nodes =
      static_cast<std::size_t>(*std::max_element(spec_.nodes.begin(), spec_.nodes.end())) + 1;
  node_batch_.assign(nodes, 0);
  std::vector<std::size_t> node_last(nodes, 0), node_rows(nodes, 0);
  std::size_t begin = 0;
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    const auto node = static_cast<std::size_t>(spec_.nodes[replica]);
    replica_begin_.push_back(begin);
    const std::size_t rows = batches_ * full_rows(replica) + last_rows(replica);
    begin += rows;
    members_.push_back({node_batch_[node], node_last[node]});
    node_batch_[node] += full_rows(replica);
    node_last[node] += last_rows(replica);
    node_rows[node] += rows;
  }
  node_begin_.push_back(0);
  for (const std::size_t rows : node_rows) node_begin_.push_back(node_begin_.back() + rows);
}

std::size_t Sampler::batches() const {
  const std::size_t full = spec_.rows / spec_.global_batch;
  return full + (spec_.keep_last && spec_.rows % spec_.global_batch != 0 ? 1 : 0);
}

std::size_t Sampler::dropped() const {
  return spec_.keep_last ? 0 : spec_.rows % spec_.global_batch;
}

// The lower replicas have one row more if the rows do not divide evenly.
std::size_t Sampler::replica_batch() const {
  return even_begin(spec_.global_batch, static_cast<std::size_t>(spec_.replicas),
                    static_cast<std::size_t>(spec_.taken));
}

std::size_t Sampler::full_rows(std::size_t replica) const {
  return share(spec_.global_batch, replica);
}

std::size_t Sampler::last_rows(std::size_t replica) const {
  return spec_.keep_last ? share(spec_.rows % spec_.global_batch, replica) : 0;
}

std::size_t Sampler::share(std::size_t rows, std::size_t replica) const {
  return even_share(rows, static_cast<std::size_t>(spec_.replicas), replica);
}

BatchPart Sampler::part(std::size_t index) const {
  check(index < batches(), "a batch of the epoch");
  const auto replica = static_cast<std::size_t>(spec_.replica);
  const auto replicas = static_cast<std::size_t>(spec_.replicas);
  const std::size_t begin = index * spec_.global_batch;
  const std::size_t rows = std::min(spec_.global_batch, spec_.rows - begin);
  const auto begin_of = [&](std::size_t one) {
    return std::min(rows,
                    even_begin(spec_.whole_blocks ? spec_.global_batch : rows, replicas, one));
  };
  const std::size_t first = begin_of(replica);
  return {.first_position = begin + first,
          .rows = begin_of(replica + static_cast<std::size_t>(spec_.taken)) - first,
          .global_rows = rows};
}

std::vector<std::size_t> Sampler::taken_rows(std::size_t index) const {
  const std::size_t all = part(index).global_rows;
  std::vector<std::size_t> rows;
  for (int i = 0; i < spec_.taken; ++i)
    rows.push_back(share(all, static_cast<std::size_t>(spec_.replica + i)));
  return rows;
}

Sampler::BatchPosition Sampler::place(std::size_t position) const {
  const std::size_t batch = position / spec_.global_batch;
  const std::size_t rows = batch < batches_ ? spec_.global_batch : spec_.rows % spec_.global_batch;
  const EvenPlace at =
      even_place(rows, static_cast<std::size_t>(spec_.replicas), position % spec_.global_batch);
  return {batch, at.part, at.index};
}

RowVisit Sampler::visit(std::uint64_t epoch, std::size_t position) const {
  check(position < spec_.rows, "a position in the epoch");
  switch (spec_.shuffle) {
    case Shuffle::none:
      return {position, epoch};
    case Shuffle::global:
      if (spec_.balance) return balanced_visit(epoch, position);
      return {permuted(position, spec_.rows, spec_.seed, epoch, row_stream), epoch};
    case Shuffle::block:
      return {row_in_blocks(epoch, position), epoch};
    case Shuffle::node:
      return {row_on_node(epoch, position), epoch};
  }
  throw Error("an order without a name");
}

// The epoch's places are mixed; a place belongs to a class, whose rows come in a separate order,
// again and again until its places are full.
RowVisit Sampler::balanced_visit(std::uint64_t epoch, std::size_t position) const {
  const ClassBalance& balance = *spec_.balance;
  const std::size_t place = permuted(position, spec_.rows, spec_.seed, epoch, row_stream);
  const auto after = std::upper_bound(balance.places.begin(), balance.places.end(), place);
  const auto label = static_cast<std::size_t>(after - balance.places.begin()) - 1;
  const std::size_t turn = place - balance.places[label], rows = balance.rows_of(label);
  const std::size_t at = permuted(turn % rows, rows, spec_.seed, epoch, first_other_stream + label);
  const std::uint64_t visit = epoch * balance.most_visits + turn / rows;
  return {balance.rows[balance.begin[label] + at], visit % epochs_of_draws};
}

// The rows, block by block in permuted order. The place of a shorter last block is drawn
// separately, so that the other places can be computed.
std::size_t Sampler::row_of_block_order(std::uint64_t epoch, std::uint64_t stream,
                                        std::size_t at) const {
  const std::size_t block = spec_.block, full = spec_.rows / block, left = spec_.rows % block;
  if (left > 0) {
    const std::size_t place =
        draw(spec_.seed, epoch, 2 * short_stream + stream, Draw::shuffle) % (full + 1);
    if (at >= place * block) {
      if (at < place * block + left) return full * block + (at - place * block);
      at -= left;
    }
  }
  return permuted(at / block, full, spec_.seed, epoch, stream) * block + at % block;
}

std::size_t Sampler::row_in_blocks(std::uint64_t epoch, std::size_t position) const {
  if (position >= covered()) return row_of_block_order(epoch, block_stream, position);
  const BatchPosition at = place(position);
  const std::size_t each = full_rows(at.replica);
  const std::size_t turn = at.batch * each + at.index;  // among this replica's rows of the epoch
  const std::size_t rows = batches_ * each + last_rows(at.replica);
  const std::size_t length = spec_.block * spec_.window, first = turn / length * length;
  const std::uint64_t stream = first_other_stream + at.replica * windows_of_replica + turn / length;
  const std::size_t mixed =
      first + permuted(turn - first, std::min(length, rows - first), spec_.seed, epoch, stream);
  return row_of_block_order(epoch, block_stream, replica_begin_[at.replica] + mixed);
}

// A node's part is as large as its share of the covered rows. floor(rows * x / covered) is written
// so that nothing overflows.
std::size_t Sampler::part_begin(std::size_t node) const {
  return node_begin_[node] + dropped() * node_begin_[node] / covered();
}

std::size_t Sampler::row_on_node(std::uint64_t epoch, std::size_t position) const {
  check(position < covered(), "a position that a batch covers");
  const BatchPosition at = place(position);
  const auto node = static_cast<std::size_t>(spec_.nodes[at.replica]);
  const Member& member = members_[at.replica];
  const std::size_t turn = at.batch * node_batch_[node] + at.index +
                           (at.batch < batches_ ? member.full_before : member.last_before);
  const std::size_t begin = part_begin(node), rows = part_begin(node + 1) - begin;
  const std::size_t mixed = permuted(turn, rows, spec_.seed, epoch, first_other_stream + node);
  return row_of_block_order(0, part_stream, begin + mixed);
}

std::vector<RowRange> Sampler::rows_of_node() const {
  if (spec_.shuffle != Shuffle::node) return {{0, spec_.rows}};
  const auto node = static_cast<std::size_t>(spec_.nodes[static_cast<std::size_t>(spec_.replica)]);
  std::vector<RowRange> runs;
  for (std::size_t at = part_begin(node); at < part_begin(node + 1); ++at) {
    const std::size_t row = row_of_block_order(0, part_stream, at);
    if (!runs.empty() && runs.back().first + runs.back().rows == row) {
      ++runs.back().rows;
    } else {
      runs.push_back({row, 1});
    }
  }
  return runs;
}

}  // namespace lockstep::data
