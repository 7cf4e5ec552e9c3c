#include "lockstep/data/loading/row_reader.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "data/loading/row_maker.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/data/loading/loader.hpp"

namespace lockstep::data {

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
  const bool bytes = stored.has_plain_bytes();
  const std::string kind = say_values(stored);
  require(!spec.effects.any() || bytes,
          fmt::format("{} has images of {}; colours are changed (data.brightness to data.erase) "
                      "where they are uint8",
                      path, kind));
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
  require(!spec.dihedral || info.height == info.width,
          fmt::format("data.dihedral turns images by 90 degrees, so their crops must be square; "
                      "those of {} are {} x {} (data.size)",
                      path, info.height, info.width));
  require(spec.channel_dropout == 0 || info.channels > 1,
          fmt::format("data.channel-dropout leaves one channel as it is, and {} has images of one "
                      "channel: leave it out",
                      path));
  return info;
}

struct RowReader::Impl {
  const DataSet& rows;
  RowMaker maker;
  std::vector<std::uint8_t> stored;

  Impl(const DataSet& data, const AugmentSpec& spec)
      : rows(data), maker(data.info(), spec, data.files().front().string()) {
    if (data.info().encoding == Encoding::raw)
      stored.resize(data.info().row_bytes() + resample_slack);
  }

  void read(std::uint64_t epoch, std::size_t row, std::span<std::uint8_t> image) {
    check(image.size() == maker.row_bytes(), "room for one row");
    maker.begin();
    if (rows.info().encoding == Encoding::jpeg) return read_jpeg(epoch, row, image.data());
    if (maker.as_stored()) {
      rows.read(row, image);
      return maker.end(&RowTimes::read_s);
    }
    const std::uint8_t* pixels = stored.data();
    if (maker.resamples())
      rows.read(row, std::span(stored).first(rows.info().row_bytes()));
    else
      pixels = rows.view(row, stored).data();
    maker.end(&RowTimes::read_s);
    maker.from_pixels(epoch, row, pixels, image.data());
  }

  void read_jpeg(std::uint64_t epoch, std::size_t row, std::uint8_t* image) {
    const std::span<const std::uint8_t> file = rows.read_jpeg(row, stored);
    maker.end(&RowTimes::read_s);
    const auto [tall, across] = rows.size(row);
    try {
      maker.from_jpeg(epoch, row, file, tall, across, image);
    } catch (const InputError& error) {
      rows.refuse_row(row, error.what());
    }
  }
};

RowReader::RowReader(const DataSet& rows, const AugmentSpec& spec)
    : impl_(std::make_unique<Impl>(rows, spec)) {}
RowReader::~RowReader() = default;
RowReader::RowReader(RowReader&&) noexcept = default;

std::size_t RowReader::row_bytes() const { return impl_->maker.row_bytes(); }

void RowReader::read(std::uint64_t epoch, std::size_t row, std::span<std::uint8_t> image) {
  impl_->read(epoch, row, image);
}

void RowReader::measure(RowTimes* times) { impl_->maker.measure(times); }

DataSetRows::DataSetRows(const DataSet& rows, const AugmentSpec& spec)
    : rows_(rows),
      spec_(spec),
      info_(delivered(rows.info(), spec, rows.files().front().string())) {}

void DataSetRows::wanted(std::size_t row, std::span<float> to) const {
  for (std::size_t k = 0; k < to.size(); ++k) {
    to[k] = rows_.wanted(row, k);
    if (info_.task == Task::values) to[k] = (to[k] - info_.target_mean[k]) / info_.target_stddev[k];
  }
}

MakeRow DataSetRows::row_maker() const {
  return [reader = std::make_shared<RowReader>(rows_, spec_)](std::uint64_t epoch, std::size_t row,
                                                              std::span<std::uint8_t> image) {
    reader->read(epoch, row, image);
  };
}

// Workers that read the same block of a chunked file would wait for the one that decodes it. So
// each decodes a later block ahead, within what the cache holds.
std::size_t DataSetRows::usual_readahead(const LoaderSpec& loader) const {
  const Storage storage = rows_.storage();
  const SamplerSpec& sampler = loader.sampler;
  if (storage.contiguous || sampler.shuffle == Shuffle::global) return 0;
  const std::size_t block = storage.block_rows * rows_.info().row_bytes();
  const std::size_t kept = storage.cache_bytes / block;  // blocks
  const bool mixed = sampler.shuffle == Shuffle::block;
  const std::size_t together = mixed ? sampler.window + 1 : 1;
  if (kept < 2 * together + loader.workers) return 0;
  return mixed ? sampler.window * sampler.block : (loader.workers + 1) * storage.block_rows;
}

}  // namespace lockstep::data
