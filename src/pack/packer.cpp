#include "pack/packer.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <tuple>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/crc32c.hpp"
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
  std::string text =
      fmt::format("rows {}\nbytes {}\nsums {}\nskipped {}\n", finished.rows, finished.bytes,
                  join(finished.sums.words(), " "), finished.skipped.size());
  for (const SkippedRow& bad : finished.skipped)
    text += fmt::format("{} {}\n", bad.row, bad.reason);
  write_text_atomically(hashes_path(partial, shard),
                        {reinterpret_cast<const char*>(finished.hashes.data()),
                         finished.hashes.size() * sizeof(RowHash)});
  write_text_atomically(note_path(partial, shard), text);
}

std::optional<FinishedShard> read_note(const fs::path& partial, const ShardPlan& shard,
                                       const data::DataSetInfo& info) {
  const fs::path path = note_path(partial, shard);
  if (!fs::exists(path)) return {};
  std::istringstream text(read_text(path));
  FinishedShard finished{0, 0, data::ChannelSums(info), {}};
  std::vector<std::uint64_t> words = finished.sums.words();
  std::size_t skipped = 0;
  const bool read = read_word(text, "rows") && text >> finished.rows && read_word(text, "bytes") &&
                    text >> finished.bytes && read_word(text, "sums") &&
                    read_numbers(text, words) && read_word(text, "skipped") && text >> skipped &&
                    skipped <= shard.rows.size();
  finished.sums.set_words(words);
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
                   const data::DataSetInfo& info) {
  Totals all(info);
  for (const ShardPlan& shard : plan) {
    const auto finished = read_note(partial, shard, info);
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
    if (source.task() != data::Task::classes) return source.where(row.row);
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

namespace {

data::Image decode(const Source& source, const PackSpec& spec, data::Element element,
                   std::size_t row, const std::string& file) {
  return file.empty() ? source.read(row)
                      : data::decode_turned(file, source.name(row), spec, element);
}

}  // namespace

data::Image read_image(const Source& source, const PackSpec& spec, data::Element element,
                       std::size_t row) {
  return decode(source, spec, element, row, source.read_file(row));
}

data::FormedImage prepare_row(const Source& source, const PackSpec& spec,
                              const data::DataSetInfo& info, std::size_t row) {
  std::string file = source.read_file(row);
  data::Image image = decode(source, spec, info.element, row, file);
  return data::bring_into(spec, info, std::move(image), std::move(file), source.name(row));
}

std::size_t packed_row_bytes(const Source& source, const PackSpec& spec,
                             const data::DataSetInfo& info) {
  if (!spec.jpeg) return info.row_bytes();
  constexpr std::size_t looked_at = 64;
  const std::size_t count = std::min(looked_at, source.rows());
  std::size_t bytes = 0, readable = 0;
  for (std::size_t i = 0; i < count; ++i) {
    try {
      bytes += prepare_row(source, spec, info, source.rows() * i / count).jpeg.size();
      ++readable;
    } catch (const InputError&) {
      if (!spec.skip_bad) throw;
    }
  }
  return readable > 0 ? bytes / readable : 1;
}

namespace {

/// Two checksums that are independent of each other.
std::uint64_t hash_of(const auto& bytes) {
  const auto* first = reinterpret_cast<const Bytef*>(bytes.data());
  const std::uint64_t high = crc32c(first, bytes.size());
  return high << 32 | ::crc32_z(0, first, bytes.size());
}

}  // namespace

Packer::Packer(const Source& source, const PackSpec& spec, const data::DataSetInfo& info,
               std::filesystem::path folder, std::vector<ShardPlan> shards)
    : source_(source),
      spec_(spec),
      info_(info),
      folder_(std::move(folder)),
      shards_(std::move(shards)),
      now_{0, 0, data::ChannelSums(info), {}},
      name_bytes_(source.file_name_bytes()) {}

Packer::~Packer() = default;

void Packer::advance(double seconds) {
  const double end = now_s() + seconds;
  while (!finished() && now_s() < end) {
    const std::vector<std::size_t>& rows = shards_[shard_].rows;
    // Not after the time: a process that was stopped may no longer have the folder.
    if (position_ == rows.size()) {
      end_pass();
      continue;
    }
    if (position_ == 0) begin_pass();
    take_row(rows[position_]);
    ++position_;
    if (!second_pass_) ++rows_done_;
  }
}

void Packer::begin_pass() {
  const ShardPlan& shard = shards_[shard_];
  now_.bytes = 0;
  now_.hashes.clear();
  now_.sums = data::ChannelSums(info_);
  bad_positions_.clear();
  writer_ = std::make_unique<data::ShardWriter>(folder_ / shard.file, info_, shard.rows.size(),
                                                name_bytes_);
}

void Packer::take_row(std::size_t row) {
  data::FormedImage packed;
  try {
    packed = prepare_row(source_, spec_, info_, row);
  } catch (const InputError& error) {
    if (!spec_.skip_bad) throw;
    now_.skipped.push_back({row, one_line(error.what())});
    bad_positions_.push_back(position_);
    writer_.reset();
    return;
  }
  const data::Image& image = packed.image;
  require(
      spec_.jpeg || (image.height == info_.height && image.width == info_.width),
      fmt::format("{}: is {} x {}, but the first image is {} x {} (height x width); give all one "
                  "size with "
                  "--resize, or keep their JPEGs with --jpeg",
                  source_.name(row), image.height, image.width, info_.height, info_.width));
  if (!writer_) return;
  writer_->name_next(source_.file_name(row));
  if (spec_.jpeg) {
    const auto* file = reinterpret_cast<const std::uint8_t*>(packed.jpeg.data());
    writer_->write_jpeg({file, packed.jpeg.size()}, image.height, image.width, source_.label(row));
  } else {
    std::vector<float> wanted(info_.wanted_values());
    for (std::size_t k = 0; k < wanted.size(); ++k) wanted[k] = source_.wanted(row, k);
    writer_->write(image.pixels, source_.label(row), wanted);
  }
  now_.bytes += spec_.jpeg ? packed.jpeg.size() : image.pixels.size();
  if (shards_[shard_].training) now_.sums.add(image.pixels);
  now_.hashes.push_back({spec_.jpeg ? hash_of(packed.jpeg) : hash_of(image.pixels), row});
}

void Packer::end_pass() {
  position_ = 0;
  ShardPlan& shard = shards_[shard_];
  if (!writer_) {
    for (auto bad = bad_positions_.rbegin(); bad != bad_positions_.rend(); ++bad)
      shard.rows.erase(shard.rows.begin() + static_cast<std::ptrdiff_t>(*bad));
    second_pass_ = true;
    if (!shard.rows.empty()) return;  // an empty shard is not written
  } else {
    source_.require_unchanged();
    writer_->finish();
    writer_.reset();
  }
  now_.rows = shard.rows.size();
  write_note(folder_, shard, now_);
  now_.skipped.clear();
  second_pass_ = false;
  ++shard_;
}

}  // namespace lockstep::pack
