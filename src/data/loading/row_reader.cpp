#include "lockstep/data/loading/row_reader.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "data/augment/effects.hpp"
#include "data/augment/geometry.hpp"
#include "data/image/jpeg/jpeg_region.hpp"
#include "data/image/pixels/resample.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace {

// The mean of the data set as a pixel: it becomes 0 after normalisation.
std::vector<std::uint8_t> mean_pixel(const DataSetInfo& info) {
  std::vector<std::uint8_t> pixel;
  for (const float mean : info.mean) {
    pixel.push_back(static_cast<std::uint8_t>(std::lround(std::clamp(mean * 255, 0.0f, 255.0f))));
  }
  return pixel;
}

// True when rows come out exactly as they are stored.
bool changes_nothing(const AugmentSpec& spec, const DataSetInfo& stored) {
  const bool whole = (spec.height == 0 || spec.height == stored.height) &&
                     (spec.width == 0 || spec.width == stored.width);
  return whole && spec.pad == 0 && !spec.flip && spec.cutout == 0 && !spec.effects.any() &&
         !resamples(spec, stored.height, stored.width);
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

DataSetInfo delivered(const DataSetInfo& stored, const AugmentSpec& spec, const std::string& path) {
  DataSetInfo info = stored;
  info.encoding = Encoding::raw;
  if (spec.height > 0) {
    info.height = spec.height;
    info.width = spec.width;
  }
  const bool jpeg = stored.encoding == Encoding::jpeg;
  const bool stretched = spec.crop == Crop::random_resized;
  require(info.height > 0, fmt::format("{} has images of many sizes: set the size of the crops "
                                       "with --data.size",
                                       path));
  require(
      (!stretched && spec.short_side == 0) || stored.channels <= 4,
      fmt::format("{} has images of {} channels; 1 to 4 can be resized", path, stored.channels));
  require(spec.pad == 0 || (!jpeg && !stretched && spec.short_side == 0),
          fmt::format("data.pad = {} needs images of one size that are not resized; {} has "
                      "none",
                      spec.pad, path));
  require(jpeg || stretched || spec.short_side > 0 ||
              (info.height <= stored.height + 2 * spec.pad &&
               info.width <= stored.width + 2 * spec.pad),
          fmt::format("{} has images of {} x {} pixels: crops of {} x {} do not fit", path,
                      stored.height, stored.width, info.height, info.width));
  require(!jpeg || stretched || spec.short_side > 0,
          fmt::format("{} has images of many sizes: resize them before they are cropped "
                      "(--data.resize)",
                      path));
  require(spec.short_side == 0 || stretched || std::max(info.height, info.width) <= spec.short_side,
          fmt::format("data.resize = {} is smaller than crops of {} x {}", spec.short_side,
                      info.height, info.width));
  require(!spec.effects.any() || stored.channels == 1 || stored.channels == 3,
          fmt::format("{} has images of {} channels; colours are changed (data.brightness to "
                      "data.erase) where there are 1 or 3",
                      path, stored.channels));
  return info;
}

struct RowReader::Impl {
  const DataSet& rows;
  AugmentSpec spec, uncut;              // uncut: without the cutout, which comes last
  std::size_t height, width, channels;  // of a finished row
  bool as_stored, resampled;
  std::vector<std::uint8_t> fill, stored, wide;
  JpegRegion region;
  Resampler resampler;
  Painter painter;
  RowTimes* times = nullptr;
  double since_s = 0;

  Impl(const DataSet& data, const AugmentSpec& how)
      : rows(data), spec(how), uncut(how), fill(mean_pixel(data.info())), painter(how) {
    const DataSetInfo& info = rows.info();
    const DataSetInfo out = delivered(info, spec, rows.files().front().string());
    height = out.height;
    width = out.width;
    channels = out.channels;
    const bool raw = info.encoding == Encoding::raw;
    uncut.cutout = 0;
    as_stored = raw && changes_nothing(spec, info);
    resampled = !raw || resamples(spec, info.height, info.width);
    if (resampled) {
      spec.height = height;
      spec.width = width;
    }
    if (raw) stored.resize(info.row_bytes() + resample_slack);
    if (raw && resampled) wide.resize(info.height * info.width * 4 + resample_slack);
  }

  void begin() {
    if (times != nullptr) since_s = now_s();
  }
  void end(double RowTimes::*work) {
    if (times == nullptr) return;
    const double now = now_s();
    times->*work += now - since_s;
    since_s = now;
  }

  void read(std::uint64_t epoch, std::size_t row, std::span<std::uint8_t> image) {
    check(image.size() == height * width * channels, "room for one row");
    begin();
    if (rows.info().encoding == Encoding::jpeg) return read_jpeg(epoch, row, image.data());
    if (as_stored) {
      rows.read(row, image);
      return end(&RowTimes::read_s);
    }
    read_pixels(epoch, row, image.data());
  }

  void read_pixels(std::uint64_t epoch, std::size_t row, std::uint8_t* image) {
    const DataSetInfo& info = rows.info();
    if (!resampled) {
      const std::uint8_t* pixels = rows.view(row, stored).data();
      end(&RowTimes::read_s);
      const RowPlacement where = placement(spec, epoch, row, info.height, info.width);
      augment(uncut, where, info.height, info.width, channels, fill, pixels, image);
    } else {
      rows.read(row, std::span(stored).first(info.row_bytes()));
      end(&RowTimes::read_s);
      widen_pixels(stored.data(), info.height * info.width, channels, wide.data());
      const Geometry how = geometry(spec, epoch, row, info.height, info.width);
      resampler.run({.pixels = wide.data(), .stride = info.width * 4}, how.rows, how.columns,
                    how.flip, channels, image);
    }
    end(&RowTimes::shape_s);
    finish(epoch, row, image);
  }

  void read_jpeg(std::uint64_t epoch, std::size_t row, std::uint8_t* image) {
    const std::span<const std::uint8_t> file = rows.read_jpeg(row, stored);
    end(&RowTimes::read_s);
    const auto [tall, across] = rows.size(row);
    Geometry how = geometry(spec, epoch, row, tall, across);
    const std::size_t reduction = spec.crop == Crop::random_resized ? reduction_of(how) : 1;
    how.rows = reduced_axis(how.rows, reduction);
    how.columns = reduced_axis(how.columns, reduction);
    const Picture picture = decode(row, file,
                                   {.height = tall,
                                    .width = across,
                                    .grey = channels == 1,
                                    .reduction = reduction,
                                    .box = box_of(needed(how.rows), needed(how.columns))});
    end(&RowTimes::decode_s);
    resampler.run(picture, how.rows, how.columns, how.flip, channels, image);
    end(&RowTimes::shape_s);
    finish(epoch, row, image);
  }

  static Box box_of(const PixelRun& down, const PixelRun& across) {
    return {.top = down.begin,
            .left = across.begin,
            .height = down.end - down.begin,
            .width = across.end - across.begin};
  }

  Picture decode(std::size_t row, std::span<const std::uint8_t> file,
                 const JpegRegion::Request& request) {
    try {
      return region.decode(file, request);
    } catch (const InputError& error) {
      rows.refuse_row(row, error.what());
    }
  }

  /// The part that does not depend on where the image came from.
  void finish(std::uint64_t epoch, std::size_t row, std::uint8_t* image) {
    if (spec.effects.any()) painter.paint(epoch, row, {image, height, width, channels}, fill);
    if (spec.cutout > 0) {
      const std::size_t tall = resampled ? height : rows.info().height;
      const std::size_t across = resampled ? width : rows.info().width;
      const RowPlacement where = placement(spec, epoch, row, tall, across);
      cut_out(spec, where, height, width, channels, fill, image);
    }
    end(&RowTimes::colour_s);
  }
};

RowReader::RowReader(const DataSet& rows, const AugmentSpec& spec)
    : impl_(std::make_unique<Impl>(rows, spec)) {}
RowReader::~RowReader() = default;
RowReader::RowReader(RowReader&&) noexcept = default;

std::size_t RowReader::row_bytes() const { return impl_->height * impl_->width * impl_->channels; }

void RowReader::read(std::uint64_t epoch, std::size_t row, std::span<std::uint8_t> image) {
  impl_->read(epoch, row, image);
}

void RowReader::measure(RowTimes* times) { impl_->times = times; }

}  // namespace lockstep::data
