#include "lockstep/data/shard.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "shard_file.hpp"

namespace lockstep::data {
namespace {

std::vector<std::filesystem::path> list_shards(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.path().extension() == ".h5") files.push_back(entry.path());
  }
  if (error) h5::refuse(path, fmt::format("cannot be listed: {}", error.message()));
  if (files.empty()) {
    h5::refuse(path, "holds no *.h5 file; give a shard or the directory that the shards are in");
  }
  std::sort(files.begin(), files.end());
  return files;
}

// All shards normalise, shape and name their rows alike, or they are not one data set.
void check_agreement(const ShardFile& first, const ShardFile& other) {
  const DataSetInfo &a = first.info, &b = other.info;
  const auto disagree = [&](std::string_view what, const std::string& mine,
                            const std::string& theirs) {
    h5::refuse(other.path, fmt::format("has {}{}, but {} in the same data set has {}", what, mine,
                                       first.path.string(), theirs));
  };
  const auto shape = [](const DataSetInfo& i) {
    return i.encoding == Encoding::jpeg
               ? fmt::format("JPEGs of {} channel(s)", i.channels)
               : fmt::format("rows of {} x {} x {}", i.height, i.width, i.channels);
  };
  if (shape(a) != shape(b)) disagree("", shape(b), shape(a));
  if (a.classes != b.classes) {
    disagree("the classes ", fmt::format("{}", b.classes), fmt::format("{}", a.classes));
  }
  if (a.mean != b.mean) disagree("mean ", fmt::format("{}", b.mean), fmt::format("{}", a.mean));
  if (a.stddev != b.stddev) {
    disagree("stddev ", fmt::format("{}", b.stddev), fmt::format("{}", a.stddev));
  }
}

void read_contiguous(const ShardFile& shard, std::size_t row, std::uint64_t offset,
                     std::span<std::uint8_t> to) {
  auto at = static_cast<off_t>(shard.offset + offset);
  for (std::span<std::uint8_t> left = to; !left.empty();) {
    const ssize_t got = ::pread(shard.descriptor.get(), left.data(), left.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      h5::refuse(shard.path,
                 fmt::format("row {} cannot be read: {}", row,
                             got == 0 ? "the file has become shorter" : std::strerror(errno)));
    }
    left = left.subspan(static_cast<std::size_t>(got));
    at += got;
  }
}

void read_through_hdf5(const ShardFile& shard, std::size_t row, std::span<std::uint8_t> image) {
  const h5::Session session;
  const DataSetInfo& info = shard.info;
  const hsize_t start[] = {row, 0, 0, 0};
  const hsize_t count[] = {1, info.height, info.width, info.channels};
  const h5::Space space(H5Dget_space(shard.images.get()));
  const h5::Space memory(H5Screate_simple(4, count, nullptr));
  if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start, nullptr, count, nullptr) < 0 ||
      H5Dread(shard.images.get(), H5T_NATIVE_UINT8, memory.get(), space.get(), H5P_DEFAULT,
              image.data()) < 0) {
    h5::refuse_with_cause(shard.path, fmt::format("row {} cannot be read", row));
  }
}

// A row of the data set as a row of one of its shards.
struct Place {
  const ShardFile& shard;
  std::size_t row;
};

}  // namespace

struct DataSet::Impl {
  std::vector<ShardFile> shards;
  std::vector<std::size_t> first_row;  // of each shard in the data set
  DataSetInfo info;
  std::vector<std::int32_t> labels;
  bool contiguous = true;

  ~Impl() {
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
    contiguous = contiguous && shard.contiguous();
  }

  Place place(std::size_t row) const {
    check(row < info.rows, "a row of the data set");
    const auto after = std::upper_bound(first_row.begin(), first_row.end(), row);
    const auto index = static_cast<std::size_t>(after - first_row.begin()) - 1;
    return {shards[index], row - first_row[index]};
  }

  void check_row(const Place& place, std::span<const std::uint8_t> bytes, std::size_t row) const {
    const std::uint32_t stored = place.shard.crcs[place.row];
    const std::uint32_t crc = row_crc(bytes, labels[row]);
    if (crc == stored) return;
    h5::refuse(
        place.shard.path,
        fmt::format("row {} is damaged: the CRC-32C of its {} and its label is {:08x}, but "
                    "{:08x} is stored; restore the file or pack it again",
                    place.row, info.encoding == Encoding::raw ? "pixels" : "JPEG", crc, stored));
  }
};

DataSet::DataSet(const std::filesystem::path& path) : impl_(std::make_unique<Impl>()) {
  const std::vector<std::filesystem::path> files = list_shards(path);
  allow_open_files(files.size());  // every shard stays open
  for (const std::filesystem::path& file : files) impl_->add(open_shard(file));
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

std::size_t DataSet::readers() const {
  return impl_->contiguous ? std::numeric_limits<std::size_t>::max() : 1;
}

std::uint64_t DataSet::row_bytes(std::size_t row) const {
  if (impl_->info.encoding == Encoding::raw) return impl_->info.row_bytes();
  const Place place = impl_->place(row);
  return place.shard.ends[place.row + 1] - place.shard.ends[place.row];
}

void DataSet::read(std::size_t row, std::span<std::uint8_t> image) const {
  check(impl_->info.encoding == Encoding::raw, "rows of pixels");
  check(image.size() == impl_->info.row_bytes(), "an image buffer of one row");
  const Place place = impl_->place(row);
  if (place.shard.contiguous()) {
    read_contiguous(place.shard, place.row, place.row * image.size(), image);
  } else {
    read_through_hdf5(place.shard, place.row, image);
  }
  impl_->check_row(place, image, row);
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
  read_contiguous(place.shard, place.row, begin, file);
  impl_->check_row(place, file, row);
  return file;
}

void DataSet::refuse_row(std::size_t row, std::string_view what) const {
  const Place place = impl_->place(row);
  h5::refuse(place.shard.path, fmt::format("row {}: {}", place.row, what));
}

}  // namespace lockstep::data
