#include "shard_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace {

using Kind = h5::NumberType::Kind;
constexpr h5::NumberType kUint8{Kind::integer, 1, false, "8-bit unsigned integer"};
constexpr h5::NumberType kUint16{Kind::integer, 2, false, "16-bit unsigned integer"};
constexpr h5::NumberType kUint64{Kind::integer, 8, false, "64-bit unsigned integer"};
constexpr h5::NumberType kInt32{Kind::integer, 4, true, "32-bit signed integer"};
constexpr h5::NumberType kUint32{Kind::integer, 4, false, "32-bit unsigned integer"};
constexpr h5::NumberType kInteger{Kind::integer, 0, true, "integer"};
constexpr h5::NumberType kFloat{Kind::real, 0, true, "floating point"};
constexpr hsize_t kLongestSide = 65535;  // keeps every product of sides within 64 bits
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62, kLargestJpeg = 1 << 28;
constexpr std::size_t kMostPixels = 1 << 28;  // as decode_image()

int version_of(Encoding encoding) {
  return encoding == Encoding::raw ? kShardVersion : kJpegShardVersion;
}

Encoding read_format(hid_t file, const std::filesystem::path& path) {
  const std::vector<std::string> format = h5::Item::attribute(file, path, "format").read_strings();
  const bool raw = format == std::vector<std::string>{kShardFormat};
  if (!raw && format != std::vector<std::string>{kJpegShardFormat}) {
    h5::refuse(path, fmt::format("the attribute 'format' is neither '{}' nor '{}'", kShardFormat,
                                 kJpegShardFormat));
  }
  const Encoding encoding = raw ? Encoding::raw : Encoding::jpeg;
  const int known = version_of(encoding);
  const h5::Item version = h5::Item::attribute(file, path, "format_version");
  version.expect_type(kInteger);
  version.expect_rank(0);
  const auto number = version.number<std::int64_t>();
  if (number != known) {
    h5::refuse(path, fmt::format("has format version {}, but this lockstep reads version {}; pack "
                                 "the data again ('lockstep pack --force'){}",
                                 number, known, number > known ? " or use a newer lockstep" : ""));
  }
  return encoding;
}

std::vector<float> read_channels(hid_t file, const std::filesystem::path& path,
                                 const std::string& name, std::size_t channels) {
  const h5::Item item = h5::Item::attribute(file, path, name);
  item.expect_type(kFloat);
  if (item.expect_rank(1)[0] != channels) {
    item.refuse(fmt::format("does not have one value for each of {} channels", channels));
  }
  std::vector<float> values(channels);
  item.read(std::span(values));
  for (const float value : values) {
    if (!std::isfinite(value)) item.refuse("has a value that is not finite");
  }
  return values;
}

template <class Number>
std::vector<Number> read_rows(const h5::Item& item, const h5::NumberType& type, std::size_t rows) {
  item.expect_type(type);
  if (const std::uint64_t found = item.expect_rank(1)[0]; found != rows) {
    item.refuse(fmt::format("has {} rows, but there are {}", found, rows));
  }
  std::vector<Number> values(rows);
  item.read(std::span(values));
  return values;
}

void read_shape(const h5::Item& images, DataSetInfo& info) {
  images.expect_type(kUint8);
  const std::vector<std::uint64_t> dimensions = images.expect_rank(4);
  if (dimensions[0] == 0) images.refuse("has no rows");
  if (dimensions[0] > kMostRows) images.refuse("has more than 2^31 rows");
  for (std::size_t i = 1; i < 4; ++i) {
    if (dimensions[i] == 0 || dimensions[i] > kLongestSide) {
      images.refuse(
          fmt::format("has rows of {} x {} x {}", dimensions[1], dimensions[2], dimensions[3]));
    }
  }
  info.rows = dimensions[0];
  info.height = dimensions[1];
  info.width = dimensions[2];
  info.channels = dimensions[3];
}

void check_labels(const ShardFile& shard) {
  const std::size_t classes = shard.info.classes.size();
  for (std::size_t row = 0; row < shard.labels.size(); ++row) {
    const std::int32_t label = shard.labels[row];
    if (label >= 0 && static_cast<std::size_t>(label) < classes) continue;
    h5::refuse(shard.path, fmt::format("row {} has label {}, but there are {} classes (0 to {})",
                                       row, label, classes, classes - 1));
  }
}

void open_pixels(ShardFile& shard, hid_t file) {
  h5::Item images = h5::Item::data_set(file, shard.path, "images");
  read_shape(images, shard.info);
  h5::Data data = images.take_data();
  if (!lies_in_one_piece(data.get(), shard.offset)) {
    const DataSetInfo& info = shard.info;
    const PixelForm form{.height = info.height, .width = info.width, .channels = info.channels};
    shard.stored = std::make_unique<StoredImages>(shard.path, std::move(data), form, info.rows);
    return;
  }
  const std::size_t row_bytes = shard.info.row_bytes();
  if (shard.info.rows > kMostBytes / row_bytes) h5::refuse(shard.path, "is truncated");
  // Before anything is made as long as the rows are said to be many.
  open_descriptor(shard, shard.info.rows * row_bytes);
}

// Each row's JPEG lies within the bytes and has a size.
void check_jpegs(const ShardFile& shard, std::uint64_t bytes) {
  for (std::size_t row = 0; row < shard.info.rows; ++row) {
    const std::uint64_t begin = shard.ends[row], end = shard.ends[row + 1];
    if (begin >= end || end > bytes || end - begin > kLargestJpeg) {
      h5::refuse(shard.path,
                 fmt::format("row {} is bytes {} to {} of {}, which cannot be (a JPEG has at most "
                             "{} bytes)",
                             row, begin, end, bytes, kLargestJpeg));
    }
    const std::size_t height = shard.sizes[2 * row], width = shard.sizes[2 * row + 1];
    if (height == 0 || width == 0 || height * width > kMostPixels) {
      h5::refuse(shard.path, fmt::format("row {} has {} x {} pixels; 1 to {} can be decoded", row,
                                         height, width, kMostPixels));
    }
  }
}

void open_jpegs(ShardFile& shard, hid_t file) {
  h5::Item jpegs = h5::Item::data_set(file, shard.path, "jpegs");
  jpegs.expect_type(kUint8);
  const std::uint64_t bytes = jpegs.expect_rank(1)[0];
  const h5::Data data = jpegs.take_data();
  if (!lies_in_one_piece(data.get(), shard.offset)) {
    h5::refuse(shard.path, "the data set /jpegs is not contiguous: write it without chunks");
  }
  open_descriptor(shard, bytes);
  const h5::Item offsets = h5::Item::data_set(file, shard.path, "offsets");
  const std::uint64_t found = offsets.expect_rank(1)[0];
  if (found < 2 || found - 2 > bytes) offsets.refuse("does not have one value more than rows");
  if (found - 1 > kMostRows) offsets.refuse("is of more than 2^31 rows");
  shard.info.rows = found - 1;
  shard.ends = read_rows<std::uint64_t>(offsets, kUint64, found);
  const h5::Item sizes = h5::Item::data_set(file, shard.path, "sizes");
  sizes.expect_type(kUint16);
  if (sizes.expect_rank(2) != std::vector<std::uint64_t>{shard.info.rows, 2}) {
    sizes.refuse("does not have a height and a width for each row");
  }
  shard.sizes.resize(2 * shard.info.rows);
  sizes.read(std::span(shard.sizes));
  check_jpegs(shard, bytes);
  const h5::Item mean = h5::Item::attribute(file, shard.path, "mean");
  shard.info.channels = mean.expect_rank(1)[0];
  if (shard.info.channels != 1 && shard.info.channels != 3) {
    mean.refuse("does not have 1 value (grey images) or 3 (colour)");
  }
}

}  // namespace

h5::File open_hdf5(const std::filesystem::path& path) {
  if (::access(path.c_str(), R_OK) != 0) {
    h5::refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  }
  if (H5Fis_hdf5(path.c_str()) <= 0) {
    h5::refuse(path, "is not an HDF5 file; make shards with 'lockstep pack'");
  }
  return h5::open_file(path);
}

bool lies_in_one_piece(hid_t images, std::uint64_t& offset) {
  const h5::Properties created(H5Dget_create_plist(images));
  const haddr_t address = H5Dget_offset(images);
  offset = address;
  return H5Pget_layout(created.get()) == H5D_CONTIGUOUS &&
         H5Pget_external_count(created.get()) == 0 && address != HADDR_UNDEF;
}

void open_descriptor(ShardFile& shard, std::uint64_t bytes) {
  // To note when a file was read is work for each row, and nobody asks for it; only the file's
  // owner may leave it out.
  constexpr int how = O_RDONLY | O_CLOEXEC;
  shard.descriptor = Owned<int, ::close, -1>(::open(shard.path.c_str(), how | O_NOATIME));
  if (!shard.descriptor && errno == EPERM)
    shard.descriptor = Owned<int, ::close, -1>(::open(shard.path.c_str(), how));
  if (!shard.descriptor) {
    const char* hint = errno == EMFILE ? " (raise 'ulimit -n' or pack into fewer shards)" : "";
    h5::refuse(shard.path, fmt::format("cannot be opened: {}{}", std::strerror(errno), hint));
  }
  shard.stamp = stamp_of(shard.descriptor.get(), shard.path);
  const std::uint64_t length = shard.stamp.bytes;
  if (length < shard.offset || length - shard.offset < bytes) {
    h5::refuse(shard.path,
               fmt::format("is truncated: {} bytes long, but its rows' {} bytes begin at {}",
                           length, bytes, shard.offset));
  }
}

ByteRange ShardFile::range(std::size_t row) const {
  if (info.encoding == Encoding::jpeg) return {ends[row], ends[row + 1]};
  const std::uint64_t bytes = form ? form->stored_bytes() : info.row_bytes();
  return {row * bytes, (row + 1) * bytes};
}

bool looks_like_shard(const std::filesystem::path& path) {
  const h5::Session session;
  const h5::File file = open_hdf5(path);
  if (H5Aexists(file.get(), "format_version") > 0) return true;
  if (H5Aexists(file.get(), "format") <= 0) return false;
  const h5::Attribute format(H5Aopen(file.get(), "format", H5P_DEFAULT));
  const h5::Type type(H5Aget_type(format.get()));
  if (H5Tget_class(type.get()) != H5T_STRING) return false;
  const auto texts = h5::Item::attribute(file.get(), path, "format").read_strings();
  return texts.size() == 1 && texts[0].starts_with("lockstep");
}

std::uint32_t row_crc(std::span<const std::uint8_t> image, std::int32_t label) {
  const auto bits = static_cast<std::uint32_t>(label);
  std::uint8_t bytes[4];
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<std::uint8_t>(bits >> (8 * i));
  return crc32c(bytes, sizeof bytes, crc32c(image.data(), image.size()));
}

ShardFile open_shard(const std::filesystem::path& path) {
  const h5::Session session;
  ShardFile shard;
  shard.path = path;
  h5::File file = open_hdf5(path);
  shard.info.encoding = read_format(file.get(), path);
  if (shard.info.encoding == Encoding::raw) {
    open_pixels(shard, file.get());
  } else {
    open_jpegs(shard, file.get());
  }
  const h5::Item classes = h5::Item::data_set(file.get(), path, "classes");
  if (classes.expect_rank(1)[0] == 0) classes.refuse("names no class");
  shard.info.classes = classes.read_strings();
  shard.info.mean = read_channels(file.get(), path, "mean", shard.info.channels);
  shard.info.stddev = read_channels(file.get(), path, "stddev", shard.info.channels);
  for (const float deviation : shard.info.stddev) {
    if (deviation <= 0) h5::refuse(path, "the attribute 'stddev' has a value that is not positive");
  }
  shard.labels = read_rows<std::int32_t>(h5::Item::data_set(file.get(), path, "labels"), kInt32,
                                         shard.info.rows);
  shard.crcs = read_rows<std::uint32_t>(h5::Item::data_set(file.get(), path, "crc32c"), kUint32,
                                        shard.info.rows);
  check_labels(shard);
  if (!shard.contiguous()) shard.file = std::move(file);
  return shard;
}

}  // namespace lockstep::data
