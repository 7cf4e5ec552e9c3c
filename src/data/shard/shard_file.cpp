#include "data/shard/shard_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "data/shard/rows.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::data {
namespace {

using Kind = h5::NumberType::Kind;
constexpr h5::NumberType uint8_numbers{Kind::integer, 1, false, "8-bit unsigned integer"};
constexpr h5::NumberType uint16_numbers{Kind::integer, 2, false, "16-bit unsigned integer"};
constexpr h5::NumberType uint64_numbers{Kind::integer, 8, false, "64-bit unsigned integer"};
constexpr h5::NumberType int32_numbers{Kind::integer, 4, true, "32-bit signed integer"};
constexpr h5::NumberType uint32_numbers{Kind::integer, 4, false, "32-bit unsigned integer"};
constexpr h5::NumberType whole_numbers{Kind::integer, 0, true, "integer"};
constexpr h5::NumberType float_numbers{Kind::real, 0, true, "floating point"};
constexpr hsize_t longest_side = 65535;  // keeps every product of sides within 64 bits
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 62, largest_jpeg = 1 << 28;
constexpr std::size_t most_pixels = 1 << 28;  // as in decode_image()

struct Format {
  Encoding encoding = Encoding::raw;
  std::int64_t version = 0;
};

Format read_format(hid_t file, const std::filesystem::path& path) {
  const std::vector<std::string> format = h5::Item::attribute(file, path, "format").read_strings();
  const bool raw = format == std::vector<std::string>{shard_format};
  if (!raw && format != std::vector<std::string>{jpeg_shard_format}) {
    h5::refuse(path, fmt::format("the attribute 'format' is neither '{}' nor '{}'", shard_format,
                                 jpeg_shard_format));
  }
  const h5::Item version = h5::Item::attribute(file, path, "format_version");
  version.expect_type(whole_numbers);
  version.expect_rank(0);
  const auto number = version.number<std::int64_t>();
  const int known = raw ? shard_version : jpeg_shard_version;
  const int last = raw ? wide_shard_version : jpeg_shard_version;
  if (number < known || number > last) {
    h5::refuse(path,
               fmt::format("has format version {}, but this lockstep reads version {}{}; pack "
                           "the data again ('lockstep pack --force'){}",
                           number, known, last > known ? fmt::format(" and {}", last) : "",
                           number > last ? " or use a newer lockstep" : ""));
  }
  return {raw ? Encoding::raw : Encoding::jpeg, number};
}

std::vector<float> read_channels(hid_t file, const std::filesystem::path& path,
                                 const std::string& name, std::size_t channels) {
  const h5::Item item = h5::Item::attribute(file, path, name);
  item.expect_type(float_numbers);
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
  const std::vector<std::uint64_t> dimensions = images.expect_rank(4);
  if (dimensions[0] == 0) images.refuse("has no rows");
  if (dimensions[0] > most_rows) images.refuse("has more than 2^31 rows");
  for (std::size_t i = 1; i < 4; ++i) {
    if (dimensions[i] == 0 || dimensions[i] > longest_side) {
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

// A shard that is being opened. Its rows can be made after everything else is read.
struct Opened {
  ShardFile shard;
  std::unique_ptr<FileBytes> bytes;
  std::unique_ptr<StoredImages> stored;
  std::vector<std::uint64_t> ends;    // with jpeg: row r is bytes [ends[r], ends[r + 1])
  std::vector<std::uint16_t> sizes;   // [rows, 2] with jpeg: height, width
  std::vector<std::int32_t> targets;  // of each row, as in its checksum; empty: there are labels

  PixelForm form() const {
    const DataSetInfo& info = shard.info;
    return {.number = number_of(info.element),
            .element = info.element,
            .height = info.height,
            .width = info.width,
            .channels = info.channels,
            .no_data = info.no_data};
  }

  std::unique_ptr<Rows> rows(std::vector<std::uint32_t> crcs, BlockCache& cache) {
    const bool jpeg = shard.info.encoding == Encoding::jpeg;
    RowChecksums checksums(shard.path, jpeg ? "JPEG" : "pixels", std::move(crcs),
                           std::move(targets));
    if (stored)
      return std::make_unique<ChunkedRows>(std::move(stored), cache, std::move(checksums));
    if (!jpeg)
      return std::make_unique<ContiguousRows>(std::move(bytes), form(), std::move(checksums));
    return std::make_unique<JpegRows>(std::move(bytes), std::move(ends), std::move(sizes),
                                      std::move(checksums));
  }
};

/// What version 3 says that version 2 does not.
void read_wide(Opened& opened, hid_t file, const h5::Item& images, hid_t type) {
  const std::optional<Number> number = number_of(type);
  if (!number || number_of(element_for(*number)) != *number)
    images.refuse("has other numbers than uint8, uint16, int16, float16 and float32");
  ShardFile& shard = opened.shard;
  shard.info.element = element_for(*number);
  const auto task = h5::Item::attribute(file, shard.path, "task").read_strings();
  const auto known = task.size() == 1 ? find_choice<Task>(task[0]) : std::nullopt;
  if (!known)
    h5::refuse(shard.path,
               fmt::format("has the task '{}', but this lockstep trains {}",
                           task.empty() ? "" : task[0], join(choice_names<Task>(), ", ")));
  shard.info.task = *known;
  shard.info.channel_names = read_channel_names(file, shard.path, shard.info.channels);
  if (H5Aexists(file, no_data_item) <= 0) return;
  const h5::Item no_data = h5::Item::attribute(file, shard.path, no_data_item);
  no_data.expect_type(float_numbers);
  no_data.expect_rank(0);
  shard.info.no_data = no_data.number<float>();
  if (std::isinf(*shard.info.no_data)) no_data.refuse("is infinite");
}

/// [rows, outputs]: labels 0, 1 or NaN, or values.
void read_targets(ShardFile& shard, hid_t file) {
  if (shard.info.task == Task::classes) return;
  const h5::Item item = h5::Item::data_set(file, shard.path, targets_item);
  item.expect_type(float_numbers);
  const std::size_t outputs = shard.info.classes.size();
  if (item.expect_rank(2) != std::vector<std::uint64_t>{shard.info.rows, outputs})
    item.refuse(
        fmt::format("does not have {} numbers for each of {} rows", outputs, shard.info.rows));
  std::vector<float> numbers(shard.info.rows * outputs);
  item.read(std::span(numbers));
  shard.wanted = WantedRows(shard.info.task, outputs);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const bool fits = shard.info.task == Task::labels ? numbers[i] == 0 || numbers[i] == 1
                                                      : std::isfinite(numbers[i]);
    if (!fits && !std::isnan(numbers[i]))
      item.refuse(fmt::format("row {} has {} as '{}'", i / outputs, numbers[i],
                              shard.info.classes[i % outputs]));
    shard.wanted.add(numbers[i]);
  }
}

/// The last part of what a row's checksum covers.
std::vector<std::int32_t> checked_labels(const ShardFile& shard) {
  std::vector<std::int32_t> labels;
  for (std::size_t row = 0; row < shard.info.rows && shard.info.task != Task::classes; ++row) {
    std::vector<float> wanted;
    for (std::size_t k = 0; k < shard.wanted.outputs(); ++k)
      wanted.push_back(shard.wanted.of(row, k));
    labels.push_back(label_of_targets(wanted));
  }
  return labels;
}

void open_pixels(Opened& opened, hid_t file, std::int64_t version) {
  const ShardFile& shard = opened.shard;
  h5::Item images = h5::Item::data_set(file, shard.path, "images");
  if (version < wide_shard_version) images.expect_type(uint8_numbers);
  read_shape(images, opened.shard.info);
  h5::Data data = images.take_data();
  const h5::Type type(H5Dget_type(data.get()));
  if (version >= wide_shard_version) read_wide(opened, file, images, type.get());
  std::uint64_t offset = 0;
  const Element element = shard.info.element;
  const bool swapped =
      element != Element::u8 && H5Tequal(type.get(), memory_type(number_of(element))) <= 0;
  if (swapped || !lies_in_one_piece(data.get(), offset)) {
    Sources sources = require_whole(shard.path, data.get());
    opened.stored = std::make_unique<StoredImages>(shard.path, std::move(data), std::move(sources),
                                                   opened.form(), shard.info.rows);
    return;
  }
  const std::size_t row_bytes = shard.info.row_bytes();
  if (shard.info.rows > most_bytes / row_bytes) h5::refuse(shard.path, "is truncated");
  // Checked before memory is taken for the number of rows that the file claims.
  opened.bytes = std::make_unique<FileBytes>(shard.path, offset, shard.info.rows * row_bytes, true);
}

// Checks that each row's JPEG lies within the bytes and has a size.
void check_jpegs(const Opened& opened, std::uint64_t bytes) {
  const ShardFile& shard = opened.shard;
  for (std::size_t row = 0; row < shard.info.rows; ++row) {
    const std::uint64_t begin = opened.ends[row], end = opened.ends[row + 1];
    if (begin >= end || end > bytes || end - begin > largest_jpeg) {
      h5::refuse(shard.path,
                 fmt::format("row {} is bytes {} to {} of {}, which cannot be (a JPEG has at most "
                             "{} bytes)",
                             row, begin, end, bytes, largest_jpeg));
    }
    const std::size_t height = opened.sizes[2 * row], width = opened.sizes[2 * row + 1];
    if (height == 0 || width == 0 || height * width > most_pixels) {
      h5::refuse(shard.path, fmt::format("row {} has {} x {} pixels; 1 to {} can be decoded", row,
                                         height, width, most_pixels));
    }
  }
}

void open_jpegs(Opened& opened, hid_t file) {
  ShardFile& shard = opened.shard;
  h5::Item jpegs = h5::Item::data_set(file, shard.path, "jpegs");
  jpegs.expect_type(uint8_numbers);
  const std::uint64_t bytes = jpegs.expect_rank(1)[0];
  const h5::Data data = jpegs.take_data();
  std::uint64_t offset = 0;
  if (!lies_in_one_piece(data.get(), offset)) {
    h5::refuse(shard.path, "the data set /jpegs is not contiguous: write it without chunks");
  }
  opened.bytes = std::make_unique<FileBytes>(shard.path, offset, bytes, true);
  const h5::Item offsets = h5::Item::data_set(file, shard.path, "offsets");
  const std::uint64_t found = offsets.expect_rank(1)[0];
  if (found < 2 || found - 2 > bytes) offsets.refuse("does not have one value more than rows");
  if (found - 1 > most_rows) offsets.refuse("is of more than 2^31 rows");
  shard.info.rows = found - 1;
  opened.ends = read_rows<std::uint64_t>(offsets, uint64_numbers, found);
  const h5::Item sizes = h5::Item::data_set(file, shard.path, "sizes");
  sizes.expect_type(uint16_numbers);
  if (sizes.expect_rank(2) != std::vector<std::uint64_t>{shard.info.rows, 2}) {
    sizes.refuse("does not have a height and a width for each row");
  }
  opened.sizes.resize(2 * shard.info.rows);
  sizes.read(std::span(opened.sizes));
  check_jpegs(opened, bytes);
  const h5::Item mean = h5::Item::attribute(file, shard.path, "mean");
  shard.info.channels = mean.expect_rank(1)[0];
  if (shard.info.channels != 1 && shard.info.channels != 3) {
    mean.refuse("does not have 1 value (grey images) or 3 (colour)");
  }
}

}  // namespace

h5::File open_hdf5(const std::filesystem::path& path) {
  require_regular(path);
  if (::access(path.c_str(), R_OK) != 0) {
    h5::refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  }
  if (H5Fis_hdf5(path.c_str()) <= 0) {
    h5::refuse(path, "is not an HDF5 file; make shards with 'lockstep pack'");
  }
  return h5::open_file(path);
}

std::vector<std::string> read_channel_names(hid_t file, const std::filesystem::path& path,
                                            std::size_t channels) {
  if (H5Lexists(file, channels_item, H5P_DEFAULT) <= 0) return {};
  h5::Item item = h5::Item::data_set(file, path, channels_item);
  if (item.expect_rank(1)[0] != channels)
    item.refuse(fmt::format("does not have one name for each of {} channels", channels));
  std::vector<std::string> names = item.read_strings();
  require_whole(path, item.take_data().get());
  return names;
}

bool lies_in_one_piece(h5::Id images, std::uint64_t& offset) {
  const h5::Properties created(H5Dget_create_plist(images));
  const haddr_t address = H5Dget_offset(images);
  offset = address;
  return H5Pget_layout(created.get()) == H5D_CONTIGUOUS &&
         H5Pget_external_count(created.get()) == 0 && address != HADDR_UNDEF;
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

ShardFile open_shard(const std::filesystem::path& path, BlockCache& cache) {
  Opened opened;  // closes what it holds under its own Session
  ShardFile& shard = opened.shard;
  shard.path = path;
  shard.stamp = stamp_of(path);
  const h5::Session session;
  const h5::File file = open_hdf5(path);
  const Format format = read_format(file.get(), path);
  shard.info.encoding = format.encoding;
  if (format.encoding == Encoding::raw) {
    open_pixels(opened, file.get(), format.version);
  } else {
    open_jpegs(opened, file.get());
  }
  const h5::Item classes = h5::Item::data_set(file.get(), path, "classes");
  if (classes.expect_rank(1)[0] == 0) classes.refuse("names no class");
  shard.info.classes = classes.read_strings();
  shard.info.mean = read_channels(file.get(), path, "mean", shard.info.channels);
  shard.info.stddev = read_channels(file.get(), path, "stddev", shard.info.channels);
  for (const float deviation : shard.info.stddev) {
    if (deviation <= 0) h5::refuse(path, "the attribute 'stddev' has a value that is not positive");
  }
  shard.labels = read_rows<std::int32_t>(h5::Item::data_set(file.get(), path, "labels"),
                                         int32_numbers, shard.info.rows);
  std::vector<std::uint32_t> crcs = read_rows<std::uint32_t>(
      h5::Item::data_set(file.get(), path, "crc32c"), uint32_numbers, shard.info.rows);
  for (const char* name : {"classes", "labels", "crc32c"})
    if (const h5::Data data = h5::Item::data_set(file.get(), path, name).take_data(); data)
      require_whole(path, data.get());
  check_labels(shard);
  read_targets(shard, file.get());
  opened.targets = checked_labels(shard);
  shard.rows_hash = crc32c(crcs.data(), crcs.size() * sizeof(std::uint32_t));
  shard.rows = opened.rows(std::move(crcs), cache);
  return std::move(shard);
}

}  // namespace lockstep::data
