#include "pack/pack_note.hpp"

#include <cstring>
#include <sstream>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/join.hpp"

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

}  // namespace lockstep::pack
