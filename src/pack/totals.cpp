#include "pack/totals.hpp"

#include <algorithm>
#include <cstdint>

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

}  // namespace lockstep::pack
