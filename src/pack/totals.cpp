#include "pack/totals.hpp"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include <fmt/core.h>

#include "lockstep/comm/agreement.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::pack {
namespace {

/// Sums integers over the ranks exactly: in halves, because doubles hold 53 bits.
std::vector<std::uint64_t> sum(comm::Control& control, const std::vector<std::uint64_t>& values) {
  std::vector<double> halves;
  for (const std::uint64_t value : values) {
    halves.push_back(static_cast<double>(value >> 32));
    halves.push_back(static_cast<double>(value & 0xFFFFFFFFu));
  }
  halves = control.sum(halves, "pack: totals");
  std::vector<std::uint64_t> total;
  for (std::size_t i = 0; i < halves.size(); i += 2)
    total.push_back((static_cast<std::uint64_t>(halves[i]) << 32) +
                    static_cast<std::uint64_t>(halves[i + 1]));
  return total;
}

}  // namespace

Tally add_up(comm::Control& control, const Tally& own) {
  std::vector<std::uint64_t> values{own.training_rows, own.validation_rows, own.bytes,
                                    own.sums.pixels};
  values.insert(values.end(), own.sums.sum.begin(), own.sums.sum.end());
  values.insert(values.end(), own.sums.squares.begin(), own.sums.squares.end());
  values = sum(control, values);
  const std::size_t channels = own.sums.sum.size();
  Tally all(channels);
  all.training_rows = values[0];
  all.validation_rows = values[1];
  all.bytes = values[2];
  all.sums.pixels = values[3];
  std::copy_n(values.begin() + 4, channels, all.sums.sum.begin());
  std::copy_n(values.begin() + 4 + static_cast<std::ptrdiff_t>(channels), channels,
              all.sums.squares.begin());
  return all;
}

std::vector<SkippedRow> gather_skipped(comm::Control& control, const Tally& tally) {
  std::vector<SkippedRow> skipped = comm::join_records(control, tally.skipped, "pack: skipped");
  std::sort(skipped.begin(), skipped.end(),
            [](const SkippedRow& a, const SkippedRow& b) { return a.row < b.row; });
  return skipped;
}

std::vector<std::string> lost_classes(const Source& source, const std::vector<ShardPlan>& plan,
                                      const std::vector<SkippedRow>& skipped) {
  std::vector<bool> out(source.rows(), false);
  for (const SkippedRow& bad : skipped) out[bad.row] = true;
  std::vector<std::size_t> rows(source.classes().size(), 0), left = rows;
  for (const ShardPlan& shard : plan) {
    if (!shard.training) continue;
    for (const std::size_t row : shard.rows) {
      const auto label = static_cast<std::size_t>(source.label(row));
      ++rows[label];
      if (!out[row]) ++left[label];
    }
  }
  std::vector<std::string> lost;
  for (std::size_t c = 0; c < rows.size(); ++c)
    if (rows[c] > 0 && left[c] == 0)
      lost.push_back(fmt::format("'{}' ({})", source.classes()[c], rows[c]));
  return lost;
}

std::vector<std::string> say_equal_images(const Source& source, const std::vector<ShardPlan>& plan,
                                          const std::filesystem::path& partial) {
  struct Row {
    std::uint64_t hash = 0, row = 0;
    std::int32_t label = 0;
    bool training = false;
  };
  std::vector<Row> rows;
  for (const ShardPlan& shard : plan)
    for (const RowHash& one : read_hashes(partial, shard))
      rows.push_back({one.hash, one.row, source.label(one.row), shard.training});
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::tie(a.hash, a.row) < std::tie(b.hash, b.row);
  });
  struct Pairs {
    std::size_t count = 0;
    const Row *first = nullptr, *second = nullptr;
    void add(const Row& a, const Row& b) {
      ++count;
      if (first != nullptr && std::tie(first->row, second->row) < std::tie(a.row, b.row)) return;
      first = &a;
      second = &b;
    }
  } classes, splits;
  for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    for (end = begin + 1; end < rows.size() && rows[end].hash == rows[begin].hash; ++end) {
      const Row &one = rows[begin], &other = rows[end];
      if (one.label != other.label)
        classes.add(one, other);
      else if (one.training != other.training)
        splits.add(one, other);
    }
  }
  const auto named = [&](const Row& row) {
    return fmt::format("{} ('{}')", source.where(row.row),
                       source.classes()[static_cast<std::size_t>(row.label)]);
  };
  std::vector<std::string> said;
  if (classes.count > 0)
    said.push_back(fmt::format(
        "{} equal to an image of another class, so one of the two labels is wrong; the first: {} "
        "and {}",
        classes.count == 1 ? "1 image is" : fmt::format("{} images are", classes.count),
        named(*classes.first), named(*classes.second)));
  if (splits.count > 0)
    said.push_back(fmt::format(
        "{} both in the training and in the validation set, which then looks better than it is; "
        "the first: {} and {}",
        splits.count == 1 ? "1 image is" : fmt::format("{} images are", splits.count),
        named(*splits.first), named(*splits.second)));
  return said;
}

}  // namespace lockstep::pack
