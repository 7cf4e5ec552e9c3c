#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "shard_file.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t kBufferBytes = 4 << 20;
constexpr hsize_t kPage = 4096;

// Where the rows' data lie in the file, in bytes from its beginning.
struct Places {
  std::uint64_t images = 0, labels = 0, crcs = 0;
};

// The file without its rows. HDF5 lays it out and is done with it before the first row arrives:
// what is large is written past it, because it can neither close a file on a disk that has filled
// up nor end the program in peace after that.
class Skeleton {
 public:
  Skeleton(const PendingFile& file, const std::filesystem::path& path) : path_(path) {
    const h5::Properties access = h5::file_access();
    H5Pset_alignment(access.get(), 16 * kPage, kPage);  // the pixels begin at a page
    file_ = h5::File(H5Fcreate(file.temporary().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()));
    done(file_ ? 0 : -1);
  }

  Places write(const DataSetInfo& info, hsize_t rows) {
    write_attributes(info);
    write_classes(info.classes);
    const hsize_t shape[] = {rows, info.height, info.width, info.channels};
    Places places;
    places.images = reserve("images", H5T_NATIVE_UINT8, shape);
    places.labels = reserve("labels", H5T_NATIVE_INT32, std::span(&rows, 1));
    places.crcs = reserve("crc32c", H5T_NATIVE_UINT32, std::span(&rows, 1));
    done(H5Fclose(file_.release()));
    return places;
  }

 private:
  void done(herr_t status) const {
    if (status < 0) h5::refuse_with_cause(path_, "cannot be written");
  }

  void attribute(const char* name, hid_t type, const h5::Space& space, const void* values) const {
    const h5::Attribute made(
        H5Acreate2(file_.get(), name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT));
    done(made ? H5Awrite(made.get(), type, values) : -1);
  }

  void write_attributes(const DataSetInfo& info) const {
    const h5::Space scalar(H5Screate(H5S_SCALAR));
    const h5::Type text = text_type(std::strlen(kShardFormat));
    attribute("format", text.get(), scalar, kShardFormat);
    attribute("format_version", H5T_NATIVE_INT, scalar, &kShardVersion);
    const hsize_t channels = info.channels;
    const h5::Space each_channel(H5Screate_simple(1, &channels, nullptr));
    attribute("mean", H5T_NATIVE_FLOAT, each_channel, info.mean.data());
    attribute("stddev", H5T_NATIVE_FLOAT, each_channel, info.stddev.data());
  }

  void write_classes(const std::vector<std::string>& classes) const {
    std::size_t longest = 1;
    for (const std::string& name : classes) longest = std::max(longest, name.size());
    std::string padded;
    for (const std::string& name : classes) {
      padded += name + std::string(longest - name.size(), '\0');
    }
    const hsize_t count = classes.size();
    const h5::Type type = text_type(longest);
    const h5::Data data = data_set("classes", type.get(), std::span(&count, 1));
    done(H5Dwrite(data.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, padded.data()));
  }

  std::uint64_t reserve(const char* name, hid_t type, std::span<const hsize_t> shape) const {
    const haddr_t offset = H5Dget_offset(data_set(name, type, shape).get());
    check(offset != HADDR_UNDEF, "a data set that is allocated early has a place");
    return offset;
  }

  // Without time stamps, so that the same rows make the same bytes.
  h5::Data data_set(const char* name, hid_t type, std::span<const hsize_t> shape) const {
    const h5::Properties how(H5Pcreate(H5P_DATASET_CREATE));
    H5Pset_obj_track_times(how.get(), false);
    H5Pset_layout(how.get(), H5D_CONTIGUOUS);
    H5Pset_alloc_time(how.get(), H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(how.get(), H5D_FILL_TIME_NEVER);
    const h5::Space space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr));
    h5::Data made(
        H5Dcreate2(file_.get(), name, type, space.get(), H5P_DEFAULT, how.get(), H5P_DEFAULT));
    done(made ? 0 : -1);
    return made;
  }

  static h5::Type text_type(std::size_t bytes) {
    h5::Type type(H5Tcopy(H5T_C_S1));
    H5Tset_size(type.get(), bytes);
    H5Tset_cset(type.get(), H5T_CSET_UTF8);
    H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
    return type;
  }

  const std::filesystem::path& path_;  // for messages: not the temporary's
  h5::File file_;
};

}  // namespace

struct ShardWriter::Impl {
  PendingFile pending;
  std::filesystem::path path;
  DataSetInfo info;
  std::size_t rows;
  Places places;
  Owned<int, ::close, -1> descriptor;
  std::vector<std::uint8_t> buffer;  // rows not yet written
  std::vector<std::int32_t> labels;
  std::vector<std::uint32_t> crcs;

  Impl(std::filesystem::path where, const DataSetInfo& what, std::size_t row_count)
      : pending(where), path(std::move(where)), info(what), rows(row_count) {
    check(rows > 0 && info.row_bytes() > 0, "a shard has rows");
    check(info.mean.size() == info.channels && info.stddev.size() == info.channels,
          "mean and deviation for every channel");
    check(!info.classes.empty(), "a shard has classes");
    buffer.reserve(std::max(kBufferBytes, info.row_bytes()));
    {
      const h5::Session session;
      places = Skeleton(pending, path).write(info, rows);
    }
    descriptor = Owned<int, ::close, -1>(::open(pending.temporary().c_str(), O_WRONLY | O_CLOEXEC));
    if (!descriptor) fail();
  }

  [[noreturn]] void fail() const {
    h5::refuse(path, fmt::format("cannot be written: {}", std::strerror(errno)));
  }

  void write_at(std::uint64_t offset, const void* from, std::size_t bytes) const {
    const auto* at = static_cast<const std::uint8_t*>(from);
    while (bytes > 0) {
      const ssize_t written = ::pwrite(descriptor.get(), at, bytes, static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail();
      at += written;
      offset += static_cast<std::uint64_t>(written);
      bytes -= static_cast<std::size_t>(written);
    }
  }

  void flush() {
    write_at(places.images, buffer.data(), buffer.size());
    places.images += buffer.size();
    buffer.clear();
  }
};

ShardWriter::ShardWriter(std::filesystem::path path, const DataSetInfo& info, std::size_t rows)
    : impl_(std::make_unique<Impl>(std::move(path), info, rows)) {}

ShardWriter::~ShardWriter() = default;

void ShardWriter::write(std::span<const std::uint8_t> image, std::int32_t label) {
  Impl& self = *impl_;
  check(self.labels.size() < self.rows, "no more rows than the shard was made for");
  check(image.size() == self.info.row_bytes(), "an image of the shard's shape");
  check(label >= 0 && static_cast<std::size_t>(label) < self.info.classes.size(),
        "a label is an index into the classes");
  if (self.buffer.size() + image.size() > self.buffer.capacity()) self.flush();
  self.buffer.insert(self.buffer.end(), image.begin(), image.end());
  self.labels.push_back(label);
  self.crcs.push_back(row_crc(image, label));
}

void ShardWriter::finish() {
  Impl& self = *impl_;
  check(self.labels.size() == self.rows, "as many rows as the shard was made for");
  self.flush();
  self.write_at(self.places.labels, self.labels.data(), self.rows * sizeof(std::int32_t));
  self.write_at(self.places.crcs, self.crcs.data(), self.rows * sizeof(std::uint32_t));
  self.pending.commit();
}

}  // namespace lockstep::data
