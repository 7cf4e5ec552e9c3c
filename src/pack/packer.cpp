#include "pack/packer.hpp"

#include <zlib.h>

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/image/image_codecs.hpp"

namespace lockstep::pack {

data::Image read_image(const Source& source, const PackSpec& spec, std::size_t row) {
  const std::string file = spec.exif_orientation ? source.read_file(row) : "";
  return file.empty() ? source.read(row) : data::decode_turned(file, source.name(row), spec);
}

data::FormedImage prepare_row(const Source& source, const PackSpec& spec,
                              const data::DataSetInfo& info, std::size_t row) {
  if (!spec.jpeg)
    return data::bring_into(spec, info.channels, read_image(source, spec, row), {}, {});
  std::string file = source.read_file(row);
  const std::string name = source.name(row);
  data::Image image = file.empty() ? source.read(row) : data::decode_turned(file, name, spec);
  return data::bring_into(spec, info.channels, std::move(image), std::move(file), name);
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
      now_{0, 0, data::ChannelSums(info.channels), {}},
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
  now_.sums = data::ChannelSums(info_.channels);
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
    writer_->write(image.pixels, source_.label(row));
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
