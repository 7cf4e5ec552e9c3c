#include "shard_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace {

constexpr h5::NumberType kUint8{H5T_INTEGER, 1, false, "8-bit unsigned integer"};
constexpr h5::NumberType kInt32{H5T_INTEGER, 4, true, "32-bit signed integer"};
constexpr h5::NumberType kUint32{H5T_INTEGER, 4, false, "32-bit unsigned integer"};
constexpr h5::NumberType kInteger{H5T_INTEGER, 0, true, "integer"};
constexpr h5::NumberType kFloat{H5T_FLOAT, 0, true, "floating point"};
constexpr hsize_t kLongestSide = 65535;  // keeps every product of sides within 64 bits

h5::File open_hdf5(const std::filesystem::path& path) {
  if (::access(path.c_str(), R_OK) != 0) {
    h5::refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  }
  if (H5Fis_hdf5(path.c_str()) <= 0) {
    h5::refuse(path, "is not an HDF5 file; make shards with 'lockstep pack'");
  }
  const h5::Properties access = h5::file_access();
  h5::File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  if (!file) h5::refuse_with_cause(path, "cannot be opened; is it whole?");
  return file;
}

void check_format(hid_t file, const std::filesystem::path& path) {
  const std::vector<std::string> format = h5::Item::attribute(file, path, "format").read_strings();
  if (format != std::vector<std::string>{kShardFormat}) {
    h5::refuse(path, fmt::format("the attribute 'format' is not '{}'", kShardFormat));
  }
  const h5::Item version = h5::Item::attribute(file, path, "format_version");
  version.expect_type(kInteger);
  version.expect_rank(0);
  long long number = 0;
  version.read(H5T_NATIVE_LLONG, &number);
  if (number != kShardVersion) {
    h5::refuse(path, fmt::format("has format version {}, but this lockstep reads version {}; pack "
                                 "the data again ('lockstep pack --force'){}",
                                 number, kShardVersion,
                                 number > kShardVersion ? " or use a newer lockstep" : ""));
  }
}

std::vector<float> read_channels(hid_t file, const std::filesystem::path& path,
                                 const std::string& name, std::size_t channels) {
  const h5::Item item = h5::Item::attribute(file, path, name);
  item.expect_type(kFloat);
  if (item.expect_rank(1)[0] != channels) {
    item.refuse(fmt::format("does not have one value for each of {} channels", channels));
  }
  std::vector<float> values(channels);
  item.read(H5T_NATIVE_FLOAT, values.data());
  for (const float value : values) {
    if (!std::isfinite(value)) item.refuse("has a value that is not finite");
  }
  return values;
}

template <class Number>
std::vector<Number> read_rows(const h5::Item& item, const h5::NumberType& type, hid_t memory_type,
                              std::size_t rows) {
  item.expect_type(type);
  if (const hsize_t found = item.expect_rank(1)[0]; found != rows) {
    item.refuse(fmt::format("has {} rows, but /images has {}", found, rows));
  }
  std::vector<Number> values(rows);
  item.read(memory_type, values.data());
  return values;
}

void read_shape(const h5::Item& images, DataSetInfo& info) {
  images.expect_type(kUint8);
  const std::vector<hsize_t> dimensions = images.expect_rank(4);
  if (dimensions[0] == 0) images.refuse("has no rows");
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

// True when the pixels are plain bytes in one piece of this very file; says where.
bool lies_in_one_piece(hid_t images, std::uint64_t& offset) {
  const h5::Properties created(H5Dget_create_plist(images));
  const haddr_t address = H5Dget_offset(images);
  offset = address;
  return H5Pget_layout(created.get()) == H5D_CONTIGUOUS &&
         H5Pget_external_count(created.get()) == 0 && address != HADDR_UNDEF;
}

void open_descriptor(ShardFile& shard) {
  shard.descriptor = Owned<int, ::close, -1>(::open(shard.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!shard.descriptor || ::fstat(shard.descriptor.get(), &status) != 0) {
    const char* hint = errno == EMFILE ? " (raise 'ulimit -n' or pack into fewer shards)" : "";
    h5::refuse(shard.path, fmt::format("cannot be opened: {}{}", std::strerror(errno), hint));
  }
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  const std::uint64_t room = bytes > shard.offset ? bytes - shard.offset : 0;
  if (room / shard.info.row_bytes() < shard.info.rows) {
    h5::refuse(shard.path,
               fmt::format("is truncated: {} bytes long, but {} rows of {} bytes begin at {}",
                           bytes, shard.info.rows, shard.info.row_bytes(), shard.offset));
  }
}

}  // namespace

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
  check_format(file.get(), path);
  h5::Item images = h5::Item::data_set(file.get(), path, "images");
  read_shape(images, shard.info);
  shard.images = images.take_data();
  if (lies_in_one_piece(shard.images.get(), shard.offset)) {
    shard.images.reset();
    open_descriptor(shard);  // before anything is made as long as the rows are said to be many
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
                                         H5T_NATIVE_INT32, shard.info.rows);
  shard.crcs = read_rows<std::uint32_t>(h5::Item::data_set(file.get(), path, "crc32c"), kUint32,
                                        H5T_NATIVE_UINT32, shard.info.rows);
  check_labels(shard);
  if (!shard.contiguous()) shard.file = std::move(file);
  return shard;
}

}  // namespace lockstep::data
