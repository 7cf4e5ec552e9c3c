#include "lockstep/data/shard.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "block_cache.hpp"
#include "foreign.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "read_bytes.hpp"
#include "shard_file.hpp"
#include "shard_list.hpp"
#include "stager.hpp"

namespace lockstep::data {
namespace {

[[noreturn]] void refuse_bad_row(const ShardFile& shard, std::string_view what) {
  throw BadRow(fmt::format("{}: {}", shard.path.string(), what));
}

// A row of the data set as a row of one of its shards.
struct Place {
  const ShardFile& shard;
  std::size_t row;
};

// Some rows of a data set, in runs, for what must be known before training.
constexpr std::size_t kSampleRuns = 8, kSampleRunRows = 128;

std::vector<std::string> numbered(std::size_t classes) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < classes; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace

struct DataSet::Impl {
  std::vector<ShardFile> shards;
  std::vector<std::size_t> first_row;  // of each shard in the data set
  DataSetInfo info;
  std::vector<std::int32_t> labels;
  BlockCache cache;
  const std::size_t cache_bytes;

  explicit Impl(std::size_t bytes) : cache(bytes), cache_bytes(bytes) {}

  Stager stager;

  ~Impl() {
    stager.stop();
    const h5::Session session;
    shards.clear();
  }

  void add(ShardFile opened) {
    shards.push_back(std::move(opened));  // first of all, so that ~Impl() closes it
    ShardFile& shard = shards.back();
    check_agreement(shards.front(), shard);
    if (shards.size() == 1) {
      info = shard.info;
      info.rows = 0;
    }
    first_row.push_back(info.rows);
    info.rows += shard.info.rows;
    labels.insert(labels.end(), shard.labels.begin(), shard.labels.end());
    shard.labels = {};
  }

  bool foreign() const { return shards.front().foreign(); }

  // What other programs' files leave open.
  void complete(const ForeignSpec& spec) {
    set_range(shards.front(), spec);
    for (ShardFile& file : shards) {
      if (!file.form) continue;
      file.form->low = shards.front().form->low;
      file.form->high = shards.front().form->high;
      if (file.stored) file.stored->set_form(*file.form);
    }
    name_classes(spec);
    const auto classes = static_cast<std::int64_t>(info.classes.size());
    const auto wrong = std::find_if(labels.begin(), labels.end(),
                                    [&](std::int32_t label) { return label >= classes; });
    if (wrong != labels.end()) {
      const Place at = place(static_cast<std::size_t>(wrong - labels.begin()));
      h5::refuse(at.shard.path, fmt::format("row {} has label {}, but there are {} classes (0 to "
                                            "{})",
                                            at.row, *wrong, classes, classes - 1));
    }
    if (spec.like != nullptr && spec.like->mean.size() == info.channels) {
      info.mean = spec.like->mean;
      info.stddev = spec.like->stddev;
    } else {
      measure_channels();
    }
  }

  void name_classes(const ForeignSpec& spec) {
    if (spec.like != nullptr && info.classes.empty()) info.classes = spec.like->classes;
    if (spec.classes > 0 && info.classes.size() != spec.classes) {
      require(info.classes.empty() || spec.like != nullptr,
              fmt::format("{} names {} classes, but data.classes = {}",
                          shards.front().path.string(), info.classes.size(), spec.classes));
      info.classes = numbered(spec.classes);
    }
    if (info.classes.empty()) {
      const std::int32_t largest = *std::max_element(labels.begin(), labels.end());
      if (largest >= 1 << 20)
        h5::refuse(shards.front().path,
                   fmt::format("or a file beside it has label {}: at most 2^20 classes", largest));
      info.classes = numbered(static_cast<std::size_t>(largest) + 1);
    }
  }

  // Mean and deviation of up to 1024 rows: the same ones on every rank and at every start.
  void measure_channels() {
    const std::size_t channels = info.channels;
    const bool all = info.rows <= kSampleRuns * kSampleRunRows;
    const std::size_t runs = all ? 1 : kSampleRuns, length = all ? info.rows : kSampleRunRows;
    std::vector<double> sums(channels, 0), squares(channels, 0);
    std::vector<std::uint8_t> image(info.row_bytes());
    double pixels = 0;
    for (std::size_t run = 0; run < runs; ++run) {
      const std::size_t first = run * (info.rows - length) / kSampleRuns;
      for (std::size_t row = first; row < first + length; ++row) {
        read(row, image);
        std::vector<std::uint64_t> sum(channels, 0), square(channels, 0);
        for (std::size_t i = 0; i < image.size(); i += channels)
          for (std::size_t c = 0; c < channels; ++c) {
            const std::uint64_t value = image[i + c];
            sum[c] += value;
            square[c] += value * value;
          }
        for (std::size_t c = 0; c < channels; ++c) {
          sums[c] += static_cast<double>(sum[c]) / 255;
          squares[c] += static_cast<double>(square[c]) / (255 * 255);
        }
        const std::size_t of_image = image.size() / channels;
        pixels += static_cast<double>(of_image);
      }
    }
    for (std::size_t c = 0; c < channels; ++c) {
      const double mean = sums[c] / pixels;
      const double variance = std::max(0.0, squares[c] / pixels - mean * mean);
      info.mean.push_back(static_cast<float>(mean));
      // A channel that is the same everywhere stays so.
      info.stddev.push_back(variance > 1e-10 ? static_cast<float>(std::sqrt(variance)) : 1.0f);
    }
  }

  Place place(std::size_t row) const {
    check(row < info.rows, "a row of the data set");
    const auto after = std::upper_bound(first_row.begin(), first_row.end(), row);
    const auto index = static_cast<std::size_t>(after - first_row.begin()) - 1;
    return {shards[index], row - first_row[index]};
  }

  void read(std::size_t row, std::span<std::uint8_t> image) {
    const Place at = place(row);
    const ShardFile& file = at.shard;
    if (file.stored) {
      const std::size_t rows = file.stored->block_rows(), block = at.row / rows;
      const auto kept = cache.get(key(at), file.stored->rows_of(block) * image.size(),
                                  [&](std::uint8_t* to) { file.stored->decode(block, to); });
      std::memcpy(image.data(), kept->memory.get() + at.row % rows * image.size(), image.size());
    } else if (file.form && !file.form->plain()) {
      read_converted(at, image);
    } else {
      read_bytes(file, at.row, at.row * image.size(), image);
    }
    check_row(at, image, row);
  }

  static void read_converted(const Place& at, std::span<std::uint8_t> image) {
    thread_local std::vector<std::uint8_t> numbers;
    const PixelForm& form = *at.shard.form;
    numbers.resize(form.stored_bytes());
    read_bytes(at.shard, at.row, at.row * numbers.size(), numbers);
    if (const auto bad = form.convert(numbers.data(), image.data())) {
      h5::refuse(at.shard.path, not_a_pixel(form, at.row, *bad));
    }
  }

  BlockCache::Key key(const Place& at) const {
    return {static_cast<std::size_t>(&at.shard - shards.data()),
            at.row / at.shard.stored->block_rows()};
  }

  void check_row(const Place& place, std::span<const std::uint8_t> bytes, std::size_t row) const {
    if (place.shard.foreign()) return;
    const std::uint32_t stored = place.shard.crcs[place.row];
    const std::uint32_t crc = row_crc(bytes, labels[row]);
    if (crc == stored) return;
    require_read(place.shard, place.row);  // pages that are gone are no damage
    refuse_bad_row(
        place.shard,
        fmt::format("row {} is damaged: the CRC-32C of its {} and its label is {:08x}, but "
                    "{:08x} is stored; restore the file or pack it again{}",
                    place.row, info.encoding == Encoding::raw ? "pixels" : "JPEG", crc, stored,
                    place.shard.staged ? fmt::format(" (and remove its copy {})",
                                                     place.shard.staged->path().string())
                                       : ""));
  }
};

DataSet::DataSet(const std::filesystem::path& path, const ForeignSpec& foreign)
    : impl_(std::make_unique<Impl>(foreign.cache_bytes)) {
  const std::vector<std::filesystem::path> files = list_shards(path);
  allow_open_files(files.size());  // every shard stays open
  for (const std::filesystem::path& file : files)
    impl_->add(looks_like_shard(file) ? open_shard(file) : open_foreign(file, foreign));
  if (impl_->foreign()) impl_->complete(foreign);
}

DataSet::~DataSet() = default;
DataSet::DataSet(DataSet&&) noexcept = default;

const DataSetInfo& DataSet::info() const { return impl_->info; }

std::span<const std::int32_t> DataSet::labels() const { return impl_->labels; }

std::vector<std::filesystem::path> DataSet::files() const {
  std::vector<std::filesystem::path> paths;
  for (const ShardFile& shard : impl_->shards) paths.push_back(shard.path);
  return paths;
}

Storage DataSet::storage() const {
  Storage storage;
  storage.layout = "contiguous";
  storage.cache_bytes = impl_->cache_bytes;
  storage.checksums = !impl_->foreign();
  for (const ShardFile& file : impl_->shards) {
    storage.converted = storage.converted || (file.form && !file.form->plain());
    if (!file.stored) continue;
    storage.contiguous = false;
    const bool slower = !storage.through_hdf5 && file.stored->through_hdf5();
    if (slower || file.stored->block_rows() > storage.block_rows ||
        storage.layout == "contiguous") {
      storage.layout = file.stored->layout();
      storage.through_hdf5 = storage.through_hdf5 || file.stored->through_hdf5();
    }
    storage.block_rows = std::max(storage.block_rows, file.stored->block_rows());
  }
  return storage;
}

std::uint64_t DataSet::row_bytes(std::size_t row) const {
  if (impl_->info.encoding == Encoding::raw) return impl_->info.row_bytes();
  const Place place = impl_->place(row);
  const ByteRange range = place.shard.range(place.row);
  return range.end - range.begin;
}

void DataSet::read(std::size_t row, std::span<std::uint8_t> image) const {
  check(impl_->info.encoding == Encoding::raw, "rows of pixels");
  check(image.size() == impl_->info.row_bytes(), "an image buffer of one row");
  impl_->read(row, image);
}

std::span<const std::uint8_t> DataSet::view(std::size_t row,
                                            std::vector<std::uint8_t>& buffer) const {
  const std::size_t bytes = impl_->info.row_bytes();
  const Place at = impl_->place(row);
  if (at.shard.mapping && (!at.shard.form || at.shard.form->plain())) {
    if (const auto* mapped = mapped_bytes(at.shard, at.row, at.row * bytes, bytes)) {
      impl_->check_row(at, {mapped, bytes}, row);
      require_read(at.shard, at.row);
      return {mapped, bytes};
    }
  }
  if (buffer.size() < bytes) buffer.resize(bytes);
  impl_->read(row, std::span(buffer).first(bytes));
  return std::span(buffer).first(bytes);
}

void DataSet::map() {
  for (ShardFile& file : impl_->shards) {
    if (!file.contiguous()) continue;
    const int from = file.staged ? file.staged->descriptor() : file.descriptor.get();
    file.mapping = std::make_unique<Mapping>(from, file.path.string());
  }
}

Staging DataSet::stage(const std::filesystem::path& directory, std::span<const Run> rows,
                       std::uint64_t promised) {
  for (const ShardFile& file : impl_->shards) {
    if (!file.contiguous())
      h5::refuse(file.path,
                 "is not contiguous, and only such data is staged (data.stage); "
                 "'lockstep pack --repack' makes shards of it");
  }
  std::vector<Stager::Part> parts;
  for (const Run& run : rows) {
    for (std::size_t done = 0; done < run.rows;) {
      const Place at = impl_->place(run.first + done);
      const std::size_t count = std::min(run.rows - done, at.shard.info.rows - at.row);
      parts.push_back({static_cast<std::size_t>(&at.shard - impl_->shards.data()),
                       at.shard.range(at.row).begin, at.shard.range(at.row + count - 1).end});
      done += count;
    }
  }
  return impl_->stager.begin(impl_->shards, directory, parts, promised);
}

double DataSet::staged() const { return impl_->stager.share(); }

bool DataSet::prepare(std::size_t row) const {
  const Place at = impl_->place(row);
  const StoredImages* stored = at.shard.stored.get();
  if (stored == nullptr) {
    const ByteRange range = at.shard.range(at.row);
    ask_for_bytes(at.shard, range.begin, range.end - range.begin);
    return false;
  }
  const std::size_t block = at.row / stored->block_rows();
  try {
    return impl_->cache.prepare(impl_->key(at), stored->rows_of(block) * impl_->info.row_bytes(),
                                [&](std::uint8_t* to) { stored->decode(block, to); });
  } catch (const InputError&) {
    return false;
  }
}

std::array<std::size_t, 2> DataSet::size(std::size_t row) const {
  check(impl_->info.encoding == Encoding::jpeg, "rows that are JPEG files");
  const Place place = impl_->place(row);
  return {place.shard.sizes[2 * place.row], place.shard.sizes[2 * place.row + 1]};
}

std::span<const std::uint8_t> DataSet::read_jpeg(std::size_t row,
                                                 std::vector<std::uint8_t>& buffer) const {
  check(impl_->info.encoding == Encoding::jpeg, "rows that are JPEG files");
  const Place place = impl_->place(row);
  const std::uint64_t begin = place.shard.ends[place.row];
  const std::size_t bytes = place.shard.ends[place.row + 1] - begin;
  if (buffer.size() < bytes) buffer.resize(bytes);
  const std::span file(buffer.data(), bytes);
  read_bytes(place.shard, place.row, begin, file);
  impl_->check_row(place, file, row);
  return file;
}

void DataSet::refuse_row(std::size_t row, std::string_view what) const {
  const Place place = impl_->place(row);
  refuse_bad_row(place.shard, fmt::format("row {}: {}", place.row, what));
}

}  // namespace lockstep::data
