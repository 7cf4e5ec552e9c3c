#include "lockstep/data/shard/shard_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "data/bytes/row_names.hpp"
#include "data/shard/rows.hpp"
#include "data/shard/shard_file.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/files/h5_writer.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::data {
namespace {

/// Where the rows' data is in a shard, in bytes from its beginning.
struct Places {
  std::uint64_t images = 0;  ///< pixels, or JPEGs
  std::uint64_t labels = 0, crcs = 0;
  std::uint64_t offsets = 0, sizes = 0;  ///< with JPEGs
  std::uint64_t names = 0;               ///< of files, where there are names
  std::uint64_t targets = 0;             ///< where the task is not classes
  std::uint64_t end = 0;                 ///< the file's length
};

struct ShardLayout {
  const DataSetInfo& info;
  std::size_t rows = 0;
  std::size_t name_bytes = 0;    ///< for each row's file name; 0: no names
  std::uint64_t jpeg_bytes = 0;  ///< of all rows, with Encoding::jpeg
};

inline constexpr std::uint64_t least_jpeg_bytes = 1 << 16;

void write_attributes(h5::Writer& file, const DataSetInfo& info) {
  const bool raw = info.encoding == Encoding::raw;
  const bool wide =
      !info.has_plain_bytes() || !info.channel_names.empty() || info.task != Task::classes;
  const std::int32_t version = !raw   ? jpeg_shard_version
                               : wide ? wide_shard_version
                                      : shard_version;
  file.attribute("format", {}, raw ? shard_format : jpeg_shard_format, h5::Ending::padding);
  file.attribute("format_version", {}, &version);
  file.attribute("mean", {&info.channels, 1}, info.mean.data());
  file.attribute("stddev", {&info.channels, 1}, info.stddev.data());
  if (!raw || !wide) return;
  file.attribute("task", {}, choice_name(info.task), h5::Ending::padding);
  if (info.no_data) file.attribute(no_data_item, {}, &*info.no_data);
  if (!info.channel_names.empty())
    file.data_set(channels_item, info.channel_names, h5::Ending::padding);
}

Places reserve_rows(h5::Writer& file, const ShardLayout& layout) {
  const DataSetInfo& info = layout.info;
  const std::size_t rows = layout.rows, jpeg_bytes = layout.jpeg_bytes;
  Places places;
  if (info.encoding == Encoding::jpeg) {
    const std::size_t offsets = rows + 1, sizes[] = {rows, 2};
    places.images = file.reserve<std::uint8_t>("jpegs", {&jpeg_bytes, 1});
    places.offsets = file.reserve<std::uint64_t>("offsets", {&offsets, 1});
    places.sizes = file.reserve<std::uint16_t>("sizes", sizes);
  } else {
    const std::size_t shape[] = {rows, info.height, info.width, info.channels};
    places.images = file.reserve("images", shape, memory_type(number_of(info.element)));
  }
  places.labels = file.reserve<std::int32_t>("labels", {&rows, 1});
  places.crcs = file.reserve<std::uint32_t>("crc32c", {&rows, 1});
  if (const std::size_t shape[] = {rows, info.wanted_values()}; shape[1] > 0)
    places.targets = file.reserve<float>(targets_item, shape);
  if (layout.name_bytes > 0)
    places.names = file.reserve_texts(file_names_item, rows, layout.name_bytes);
  return places;
}

/// Writes a shard without its rows to `file`. HDF5 lays it out and closes it before the first row
/// arrives. The rows are written without HDF5, because HDF5 can neither close a file on a full disk
/// nor let the program end cleanly after that. The place where
/// JPEGs begin does not depend on `jpeg_bytes` if it is least_jpeg_bytes or more. Errors name
/// `path`.
Places write_skeleton(const std::filesystem::path& file, const std::filesystem::path& path,
                      const ShardLayout& layout) {
  const h5::Session session;
  h5::Writer writer =
      h5::Writer::on_disk(file, path, least_jpeg_bytes);  // the pixels begin at a page
  write_attributes(writer, layout.info);
  writer.data_set("classes", layout.info.classes, h5::Ending::padding);
  Places places = reserve_rows(writer, layout);
  writer.close();
  places.end = std::filesystem::file_size(file);
  return places;
}

}  // namespace

namespace {

constexpr std::size_t write_buffer_bytes = 4 << 20;

}  // namespace

// HDF5 lays out a raw shard first, and its rows are written into it. The length of JPEGs is not
// known in advance, but the place where they begin is: they are written there, and the layout is
// written around them at the end.
struct ShardWriter::Impl {
  PendingFile pending;
  std::filesystem::path path;
  DataSetInfo info;
  std::size_t rows;
  Places places;
  Descriptor descriptor;
  std::uint64_t flushed = 0;         // bytes of rows in the file
  std::vector<std::uint8_t> buffer;  // rows not yet written
  std::vector<std::int32_t> labels;
  std::vector<float> targets;
  std::vector<std::uint32_t> crcs;
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint16_t> sizes;
  std::size_t name_bytes;
  std::string names;  // name_bytes for each row

  Impl(std::filesystem::path where, const DataSetInfo& what, std::size_t row_count,
       std::size_t bytes_of_name)
      : pending(where),
        path(std::move(where)),
        info(what),
        rows(row_count),
        name_bytes(std::min(bytes_of_name, longest_file_name)) {
    check(rows > 0 && info.channels > 0, "a shard has rows");
    check(jpeg() || info.row_bytes() > 0, "rows of pixels have pixels");
    check(info.mean.size() == info.channels && info.stddev.size() == info.channels,
          "mean and deviation for every channel");
    check(!info.classes.empty(), "a shard has classes");
    buffer.reserve(std::max(write_buffer_bytes, info.row_bytes()));
    places = write_skeleton(pending.temporary(), path, layout_of(least_jpeg_bytes));
    descriptor = Descriptor(::open(pending.temporary().c_str(), O_WRONLY | O_CLOEXEC));
    if (!descriptor) fail();
    offsets.push_back(0);
  }

  ShardLayout layout_of(std::uint64_t jpeg_bytes) const {
    return {.info = info, .rows = rows, .name_bytes = name_bytes, .jpeg_bytes = jpeg_bytes};
  }

  bool jpeg() const { return info.encoding == Encoding::jpeg; }

  [[noreturn]] void fail() const { fail_by_system(path.string() + ": cannot be written", errno); }

  void write_at(std::uint64_t offset, const void* from, std::size_t bytes) const {
    if (write_all_at(descriptor.get(), from, bytes, offset) != bytes) fail();
  }

  void flush() {
    write_at(places.images + flushed, buffer.data(), buffer.size());
    flushed += buffer.size();
    buffer.clear();
  }

  void append(std::span<const std::uint8_t> bytes, std::int32_t label,
              std::span<const float> wanted = {}) {
    check(wanted.size() == info.wanted_values(), "a number for each label or value");
    check(labels.size() < rows, "no more rows than the shard was made for");
    check(label >= 0 && static_cast<std::size_t>(label) < info.classes.size(),
          "a label is an index into the classes");
    if (buffer.size() + bytes.size() > buffer.capacity()) flush();
    buffer.insert(buffer.end(), bytes.begin(), bytes.end());
    labels.push_back(label);
    targets.insert(targets.end(), wanted.begin(), wanted.end());
    crcs.push_back(row_crc(bytes, wanted.empty() ? label : label_of_targets(wanted)));
  }

  // The final layout, except for the room for the JPEGs.
  void write_layout() {
    const PendingFile layout(path.string() + ".layout");
    const std::uint64_t bytes = std::max(flushed, least_jpeg_bytes);
    const Places final_places = write_skeleton(layout.temporary(), path, layout_of(bytes));
    check(final_places.images == places.images, "JPEGs begin where they were expected to");
    places = final_places;
    const Descriptor from(::open(layout.temporary().c_str(), O_RDONLY | O_CLOEXEC));
    if (!from || ::ftruncate(descriptor.get(), static_cast<off_t>(places.end)) != 0) fail();
    copy(from.get(), 0, places.images);
    copy(from.get(), places.images + bytes, places.end);
  }

  void copy(int from, std::uint64_t begin, std::uint64_t end) {
    std::vector<std::uint8_t> piece(1 << 16);
    while (begin < end) {
      const std::size_t bytes = std::min<std::size_t>(piece.size(), end - begin);
      if (read_all_at(from, piece.data(), bytes, begin) != bytes) fail();
      write_at(begin, piece.data(), bytes);
      begin += bytes;
    }
  }

  template <class Number>
  void write_table(std::uint64_t offset, const std::vector<Number>& numbers) const {
    write_at(offset, numbers.data(), numbers.size() * sizeof(Number));
  }
};

ShardWriter::ShardWriter(std::filesystem::path path, const DataSetInfo& info, std::size_t rows,
                         std::size_t name_bytes)
    : impl_(std::make_unique<Impl>(std::move(path), info, rows, name_bytes)) {}

ShardWriter::~ShardWriter() = default;

void ShardWriter::name_next(std::string_view file) {
  Impl& self = *impl_;
  if (self.name_bytes == 0) return;
  if (file.size() > self.name_bytes) file.remove_prefix(file.size() - self.name_bytes);
  self.names.append(file);
  self.names.resize((self.labels.size() + 1) * self.name_bytes);
}

void ShardWriter::write(std::span<const std::uint8_t> image, std::int32_t label,
                        std::span<const float> wanted) {
  check(!impl_->jpeg() && image.size() == impl_->info.row_bytes(), "an image of the shard's shape");
  impl_->append(image, label, wanted);
}

void ShardWriter::write_jpeg(std::span<const std::uint8_t> file, std::size_t height,
                             std::size_t width, std::int32_t label) {
  constexpr std::size_t most = 65535;
  check(impl_->jpeg() && !file.empty(), "a JPEG for a shard of JPEGs");
  check(std::min(height, width) > 0 && std::max(height, width) <= most, "the size of a JPEG");
  impl_->append(file, label);
  impl_->offsets.push_back(impl_->offsets.back() + file.size());
  impl_->sizes.push_back(static_cast<std::uint16_t>(height));
  impl_->sizes.push_back(static_cast<std::uint16_t>(width));
}

void ShardWriter::finish() {
  Impl& self = *impl_;
  check(self.labels.size() == self.rows, "as many rows as the shard was made for");
  self.flush();
  if (self.jpeg()) {
    self.write_layout();
    self.write_table(self.places.offsets, self.offsets);
    self.write_table(self.places.sizes, self.sizes);
  }
  self.write_table(self.places.labels, self.labels);
  self.write_table(self.places.crcs, self.crcs);
  if (!self.targets.empty()) self.write_table(self.places.targets, self.targets);
  self.names.resize(self.rows * self.name_bytes);
  self.write_at(self.places.names, self.names.data(), self.names.size());
  self.pending.commit();
}

}  // namespace lockstep::data
