#include "lockstep/data/pack_folder.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::data {

namespace {

/// Sixteen pixels side by side, in sums of 32 bits for as long as these hold the squares.
template <std::size_t channels>
std::size_t add_sixteens(const std::uint8_t* from, std::size_t bytes, std::uint64_t* sum,
                         std::uint64_t* squares) {
  constexpr std::size_t lanes = 16 * channels, most = 65'536;
  static_assert(std::uint64_t{255} * 255 * most < std::uint64_t{1} << 32);
  std::size_t done = 0;
  while (bytes - done >= lanes) {
    std::uint32_t values[lanes] = {}, products[lanes] = {};
    const std::size_t turns = std::min((bytes - done) / lanes, most);
    for (std::size_t turn = 0; turn < turns; ++turn, done += lanes)
      for (std::size_t i = 0; i < lanes; ++i) {
        const std::uint32_t value = from[done + i];
        values[i] += value;
        products[i] += value * value;
      }
    for (std::size_t i = 0; i < lanes; ++i) {
      sum[i % channels] += values[i];
      squares[i % channels] += products[i];
    }
  }
  return done;
}

}  // namespace

void ChannelSums::add(const std::vector<std::uint8_t>& image) {
  const std::size_t channels = sum.size();
  check(channels > 0, "sums over no channels");
  std::size_t done = 0;
  if (channels == 1) done = add_sixteens<1>(image.data(), image.size(), sum.data(), squares.data());
  if (channels == 3) done = add_sixteens<3>(image.data(), image.size(), sum.data(), squares.data());
  for (std::size_t i = done; i < image.size(); ++i) {
    const std::uint32_t value = image[i];
    sum[i % channels] += value;
    squares[i % channels] += value * value;
  }
  pixels += image.size() / channels;
}

void ChannelSums::add(const ChannelSums& other) {
  pixels += other.pixels;
  for (std::size_t c = 0; c < sum.size(); ++c) {
    sum[c] += other.sum[c];
    squares[c] += other.squares[c];
  }
}

std::vector<float> ChannelSums::mean() const {
  std::vector<float> mean;
  for (const std::uint64_t s : sum)
    mean.push_back(static_cast<float>(static_cast<double>(s) / static_cast<double>(pixels) / 255));
  return mean;
}

std::vector<float> ChannelSums::stddev() const {
  std::vector<float> stddev;
  const auto n = static_cast<double>(pixels);
  for (std::size_t c = 0; c < sum.size(); ++c) {
    const double mean = static_cast<double>(sum[c]) / n;
    const double variance = static_cast<double>(squares[c]) / n - mean * mean;
    // A thousandth of a grey level is rounding, or as good as constant.
    stddev.push_back(variance < 1e-6 ? 1.0f : static_cast<float>(std::sqrt(variance) / 255));
  }
  return stddev;
}

void Tally::add(const ShardPlan& shard, const FinishedShard& finished) {
  (shard.training ? training_rows : validation_rows) += finished.rows;
  bytes += finished.bytes;
  sums.add(finished.sums);
  skipped.insert(skipped.end(), finished.skipped.begin(), finished.skipped.end());
}

void Tally::add(const Tally& other) {
  training_rows += other.training_rows;
  validation_rows += other.validation_rows;
  bytes += other.bytes;
  sums.add(other.sums);
  skipped.insert(skipped.end(), other.skipped.begin(), other.skipped.end());
}

Packer::Packer(const Source& source, const PackSpec& spec, const DataSetInfo& info,
               std::filesystem::path folder, std::vector<ShardPlan> shards)
    : source_(source),
      spec_(spec),
      info_(info),
      folder_(std::move(folder)),
      shards_(std::move(shards)),
      now_{0, 0, ChannelSums(info.channels), {}},
      tally_(info.channels) {}

Packer::~Packer() = default;

void Packer::advance(double seconds) {
  const double end = now_s() + seconds;
  while (!finished() && now_s() < end) {
    const std::vector<std::size_t>& rows = shards_[shard_].rows;
    if (position_ == 0) begin_pass();
    take_row(rows[position_]);
    ++position_;
    if (!second_pass_) ++rows_done_;
    if (position_ == rows.size()) end_pass();
  }
}

void Packer::begin_pass() {
  const ShardPlan& shard = shards_[shard_];
  now_.bytes = 0;
  now_.sums = ChannelSums(info_.channels);
  bad_positions_.clear();
  writer_ = std::make_unique<ShardWriter>(folder_ / shard.file, info_, shard.rows.size());
}

void Packer::take_row(std::size_t row) {
  PackedRow packed;
  try {
    packed = prepare_row(source_, spec_, info_, row);
  } catch (const InputError& error) {
    if (!spec_.skip_bad) throw;
    now_.skipped.push_back({row, error.what()});
    bad_positions_.push_back(position_);
    writer_.reset();
    return;
  }
  const Image& image = packed.image;
  require(spec_.jpeg || (image.height == info_.height && image.width == info_.width),
          fmt::format("{}: is {} x {}, but the first image is {} x {}; give all one size with "
                      "--resize, or keep their JPEGs with --jpeg",
                      source_.name(row), image.height, image.width, info_.height, info_.width));
  if (!writer_) return;
  if (spec_.jpeg) {
    const auto* file = reinterpret_cast<const std::uint8_t*>(packed.jpeg.data());
    writer_->write_jpeg({file, packed.jpeg.size()}, image.height, image.width, source_.label(row));
  } else {
    writer_->write(image.pixels, source_.label(row));
  }
  now_.bytes += spec_.jpeg ? packed.jpeg.size() : image.pixels.size();
  if (shards_[shard_].training) now_.sums.add(image.pixels);
}

void Packer::end_pass() {
  position_ = 0;
  ShardPlan& shard = shards_[shard_];
  if (!writer_) {
    for (auto bad = bad_positions_.rbegin(); bad != bad_positions_.rend(); ++bad)
      shard.rows.erase(shard.rows.begin() + static_cast<std::ptrdiff_t>(*bad));
    second_pass_ = true;
    if (!shard.rows.empty()) return;  // a shard of nothing is not written
  } else {
    source_.require_unchanged();
    writer_->finish();
    writer_.reset();
  }
  now_.rows = shard.rows.size();
  write_note(folder_, shard, now_);
  tally_.add(shard, now_);
  now_.skipped.clear();
  second_pass_ = false;
  ++shard_;
}

}  // namespace lockstep::data
