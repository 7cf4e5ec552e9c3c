#include "pack/totals.hpp"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep::pack {

Totals read_totals(const std::filesystem::path& partial, const std::vector<ShardPlan>& plan,
                   std::size_t channels) {
  Totals all(channels);
  for (const ShardPlan& shard : plan) {
    const auto finished = read_note(partial, shard, channels);
    if (!finished)
      throw Error(fmt::format("{}: was written, and cannot be seen: run the same command again",
                              (partial / shard.file).string()));
    (shard.training ? all.training_rows : all.validation_rows) += finished->rows;
    all.bytes += finished->bytes;
    all.sums.add(finished->sums);
    all.skipped.insert(all.skipped.end(), finished->skipped.begin(), finished->skipped.end());
  }
  std::sort(all.skipped.begin(), all.skipped.end(),
            [](const SkippedRow& a, const SkippedRow& b) { return a.row < b.row; });
  return all;
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
