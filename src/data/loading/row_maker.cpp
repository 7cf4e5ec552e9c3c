#include "data/loading/row_maker.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "data/augment/any_image.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"

namespace lockstep::data {
namespace {

bool changes_nothing(const AugmentSpec& spec, const DataSetInfo& stored) {
  const bool whole = (spec.height == 0 || spec.height == stored.height) &&
                     (spec.width == 0 || spec.width == stored.width);
  return whole && spec.pad == 0 && !spec.flip && !spec.dihedral && spec.channel_dropout == 0 &&
         spec.cutout == 0 && !spec.effects.any() && !resamples(spec, stored.height, stored.width);
}

Box box_of(const PixelRun& down, const PixelRun& across) {
  return {.top = down.begin,
          .left = across.begin,
          .height = down.end - down.begin,
          .width = across.end - across.begin};
}

// How far a JPEG may be reduced in decoding. The result is then resized down to the target.
std::size_t reduction_of(const Geometry& how) {
  for (const std::size_t reduction : {8, 4, 2})
    if (how.rows.length >= reduction * how.rows.target &&
        how.columns.length >= reduction * how.columns.target)
      return reduction;
  return 1;
}

Axis reduced_axis(const Axis& axis, std::size_t reduction) {
  Axis smaller = axis;
  smaller.begin = axis.begin / reduction;
  smaller.length = reduced(axis.begin + axis.length, reduction) - smaller.begin;
  return smaller;
}

}  // namespace

RowMaker::RowMaker(const DataSetInfo& stored, const AugmentSpec& spec, const std::string& path)
    : spec_(spec),
      uncut_(spec),
      tall_(stored.height),
      across_(stored.width),
      fill_(mean_pixel(stored)),
      stored_(stored),
      painter_(spec) {
  const DataSetInfo out = delivered(stored, spec, path);
  height_ = out.height;
  width_ = out.width;
  channels_ = out.channels;
  pixel_bytes_ = out.pixel_bytes();
  if (!out.enter_as_bytes()) border_ = fill_;
  const bool raw = stored.encoding == Encoding::raw;
  uncut_.cutout = 0;
  as_stored_ = raw && changes_nothing(spec, stored);
  resampled_ = !raw || data::resamples(spec, stored.height, stored.width);
  if (!resampled_) return;
  spec_.height = height_;
  spec_.width = width_;
  by_value_ = raw && (!stored.has_plain_bytes() || stored.channels > 4);
  if (raw && !by_value_) wide_.resize(stored.height * stored.width * 4 + resample_slack);
}

void RowMaker::begin() {
  if (times_ != nullptr) since_s_ = now_s();
}

void RowMaker::end(double RowTimes::*work) {
  if (times_ == nullptr) return;
  const double now = now_s();
  times_->*work += now - since_s_;
  since_s_ = now;
}

void RowMaker::from_pixels(std::uint64_t epoch, std::size_t row, const std::uint8_t* pixels,
                           std::uint8_t* image) {
  if (!resampled_) {
    const RowPlacement where = placement(spec_, epoch, row, tall_, across_);
    augment(uncut_, where, tall_, across_, pixel_bytes_, fill_, pixels, image, border_);
  } else if (by_value_) {
    const Geometry how = geometry(spec_, epoch, row, tall_, across_);
    value_resampler_.run(stored_, pixels, how.rows, how.columns, how.flip, image);
  } else {
    widen_pixels(pixels, tall_ * across_, channels_, wide_.data());
    const Geometry how = geometry(spec_, epoch, row, tall_, across_);
    resampler_.run({.pixels = wide_.data(), .stride = across_ * 4}, how.rows, how.columns, how.flip,
                   channels_, image);
  }
  end(&RowTimes::shape_s);
  finish(epoch, row, image);
}

void RowMaker::from_jpeg(std::uint64_t epoch, std::size_t row, std::span<const std::uint8_t> file,
                         std::size_t tall, std::size_t across, std::uint8_t* image) {
  Geometry how = geometry(spec_, epoch, row, tall, across);
  const std::size_t reduction = spec_.crop == Crop::random_resized ? reduction_of(how) : 1;
  how.rows = reduced_axis(how.rows, reduction);
  how.columns = reduced_axis(how.columns, reduction);
  const Picture picture =
      region_.decode(file, {.height = tall,
                            .width = across,
                            .grey = channels_ == 1,
                            .reduction = reduction,
                            .box = box_of(needed(how.rows), needed(how.columns))});
  end(&RowTimes::decode_s);
  resampler_.run(picture, how.rows, how.columns, how.flip, channels_, image);
  end(&RowTimes::shape_s);
  finish(epoch, row, image);
}

/// The part that does not depend on where the image came from.
void RowMaker::finish(std::uint64_t epoch, std::size_t row, std::uint8_t* image) {
  if (spec_.effects.any()) painter_.paint(epoch, row, {image, height_, width_, channels_}, fill_);
  if (spec_.dihedral) turn(symmetry(spec_, epoch, row), height_, pixel_bytes_, image, unturned_);
  if (spec_.channel_dropout > 0)
    drop_channels(dropped_channels(spec_, epoch, row, channels_), fill_, pixel_bytes_ / channels_,
                  height_ * width_, image);
  if (spec_.cutout > 0) {
    const RowPlacement where =
        placement(spec_, epoch, row, resampled_ ? height_ : tall_, resampled_ ? width_ : across_);
    cut_out(spec_, where, height_, width_, pixel_bytes_, fill_, image);
  }
  end(&RowTimes::colour_s);
}

namespace {

constexpr std::uint32_t most_attempts = 100;

}  // namespace

std::size_t substitute(std::size_t rows, std::uint64_t seed, std::uint64_t epoch, std::size_t row,
                       std::uint32_t attempt) {
  const Philox bits = draw4(seed, epoch, row, Draw::replace, attempt);
  const std::uint64_t number = std::uint64_t{bits.word[1]} << 32 | bits.word[0];
  return number % rows;
}

void read_whole(const MakeRow& make, std::size_t rows, std::uint64_t seed, std::uint64_t epoch,
                Replaced& found, std::span<std::uint8_t> image) {
  found.by = found.row;
  for (std::uint32_t attempt = 0;; ++attempt) {
    try {
      return make(epoch, found.by, image);
    } catch (const BadRow& broken) {
      if (attempt == 0) found.what = broken.what();
    }
    if (attempt == most_attempts)
      throw BadRow(fmt::format("{}; {} others that were to replace it are broken, too", found.what,
                               most_attempts));
    found.by = substitute(rows, seed, epoch, found.row, attempt);
  }
}

}  // namespace lockstep::data
