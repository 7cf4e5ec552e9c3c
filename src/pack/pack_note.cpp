#include "pack/pack_note.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <tuple>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

fs::path note_path(const fs::path& partial, const ShardPlan& shard) {
  return partial / "done" / shard.file.filename().replace_extension(".txt");
}

fs::path hashes_path(const fs::path& partial, const ShardPlan& shard) {
  return note_path(partial, shard).replace_extension(".hashes");
}

bool read_word(std::istream& from, const char* word) {
  std::string found;
  return from >> found && found == word;
}

bool read_numbers(std::istream& from, std::vector<std::uint64_t>& numbers) {
  for (std::uint64_t& number : numbers) from >> number;
  return static_cast<bool>(from);
}

}  // namespace

void write_note(const fs::path& partial, const ShardPlan& shard, const FinishedShard& finished) {
  const data::ChannelSums& sums = finished.sums;
  std::string text = fmt::format("rows {}\nbytes {}\npixels {}\nsum {}\nsquares {}\nskipped {}\n",
                                 finished.rows, finished.bytes, sums.pixels, join(sums.sum, " "),
                                 join(sums.squares, " "), finished.skipped.size());
  for (const SkippedRow& bad : finished.skipped)
    text += fmt::format("{} {}\n", bad.row, bad.reason);
  write_text_atomically(hashes_path(partial, shard),
                        {reinterpret_cast<const char*>(finished.hashes.data()),
                         finished.hashes.size() * sizeof(RowHash)});
  write_text_atomically(note_path(partial, shard), text);
}

std::optional<FinishedShard> read_note(const fs::path& partial, const ShardPlan& shard,
                                       std::size_t channels) {
  const fs::path path = note_path(partial, shard);
  if (!fs::exists(path)) return {};
  std::istringstream text(read_text(path));
  FinishedShard finished{0, 0, data::ChannelSums(channels), {}};
  std::size_t skipped = 0;
  const bool read = read_word(text, "rows") && text >> finished.rows && read_word(text, "bytes") &&
                    text >> finished.bytes && read_word(text, "pixels") &&
                    text >> finished.sums.pixels && read_word(text, "sum") &&
                    read_numbers(text, finished.sums.sum) && read_word(text, "squares") &&
                    read_numbers(text, finished.sums.squares) && read_word(text, "skipped") &&
                    text >> skipped && skipped <= shard.rows.size();
  bool whole = read;
  for (std::size_t i = 0; i < skipped && whole; ++i) {
    SkippedRow bad;
    whole = text >> bad.row && text.get() == ' ' && std::getline(text, bad.reason);
    finished.skipped.push_back(bad);
  }
  require(whole && finished.rows + finished.skipped.size() == shard.rows.size(),
          fmt::format("{}: is damaged: remove {} to start again", path.string(), partial.string()));
  // A shard has no file if all of its images were left out. One without hashes is of an older pack.
  if (finished.rows > 0 &&
      (!fs::exists(partial / shard.file) || !fs::exists(hashes_path(partial, shard))))
    return {};
  return finished;
}

std::vector<RowHash> read_hashes(const fs::path& partial, const ShardPlan& shard) {
  const std::string bytes = read_text(hashes_path(partial, shard));
  std::vector<RowHash> hashes(bytes.size() / sizeof(RowHash));
  std::memcpy(hashes.data(), bytes.data(), hashes.size() * sizeof(RowHash));
  return hashes;
}

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
