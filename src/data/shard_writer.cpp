#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "shard_file.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t kBufferBytes = 4 << 20;
constexpr hsize_t kPage = 4096;

// Every call to HDF5 in this file may meet a full disk; `path` is the shard's, not the temporary's.
struct Creation {
  hid_t file;
  const std::filesystem::path& path;

  template <class Handle>
  Handle made(Handle handle) const {
    if (!handle) h5::refuse_with_cause(path, "cannot be written");
    return handle;
  }
  void done(herr_t status) const {
    if (status < 0) h5::refuse_with_cause(path, "cannot be written");
  }

  // The same bytes for the same rows: no time stamps. Allocated at once and never filled, so that
  // pixels lie in one piece and are written once.
  h5::Data data_set(const char* name, hid_t type, std::span<const hsize_t> dimensions) const {
    const h5::Properties how(H5Pcreate(H5P_DATASET_CREATE));
    H5Pset_obj_track_times(how.get(), false);
    H5Pset_layout(how.get(), H5D_CONTIGUOUS);
    H5Pset_alloc_time(how.get(), H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(how.get(), H5D_FILL_TIME_NEVER);
    const h5::Space space(
        H5Screate_simple(static_cast<int>(dimensions.size()), dimensions.data(), nullptr));
    return made(
        h5::Data(H5Dcreate2(file, name, type, space.get(), H5P_DEFAULT, how.get(), H5P_DEFAULT)));
  }

  void write_whole(const char* name, hid_t file_type, hid_t memory_type, const void* values,
                   hsize_t count) const {
    const h5::Data data = data_set(name, file_type, std::span(&count, 1));
    done(H5Dwrite(data.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
  }

  void attribute(const char* name, hid_t file_type, hid_t memory_type, const h5::Space& space,
                 const void* values) const {
    const h5::Attribute attribute = made(
        h5::Attribute(H5Acreate2(file, name, file_type, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
    done(H5Awrite(attribute.get(), memory_type, values));
  }
};

h5::Type text_type(std::size_t bytes) {
  h5::Type type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), bytes);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  return type;
}

void write_description(const Creation& to, const DataSetInfo& info) {
  const h5::Space scalar(H5Screate(H5S_SCALAR));
  const h5::Type format = text_type(std::strlen(kShardFormat));
  to.attribute("format", format.get(), format.get(), scalar, kShardFormat);
  to.attribute("format_version", H5T_STD_I32LE, H5T_NATIVE_INT, scalar, &kShardVersion);
  const hsize_t channels = info.channels;
  const h5::Space each_channel(H5Screate_simple(1, &channels, nullptr));
  to.attribute("mean", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, each_channel, info.mean.data());
  to.attribute("stddev", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, each_channel, info.stddev.data());

  std::size_t longest = 1;
  for (const std::string& name : info.classes) longest = std::max(longest, name.size());
  std::string padded;
  for (const std::string& name : info.classes) {
    padded += name + std::string(longest - name.size(), '\0');
  }
  const h5::Type name_type = text_type(longest);
  to.write_whole("classes", name_type.get(), name_type.get(), padded.data(), info.classes.size());
}

}  // namespace

struct ShardWriter::Impl {
  PendingFile pending;
  std::filesystem::path path;
  DataSetInfo info;
  std::size_t rows;
  h5::File file;
  h5::Data images;
  std::vector<std::uint8_t> buffer;  // rows not yet handed to HDF5
  std::size_t stored = 0;            // rows that were
  std::vector<std::int32_t> labels;
  std::vector<std::uint32_t> crcs;

  Impl(std::filesystem::path where, const DataSetInfo& what, std::size_t row_count)
      : pending(where), path(std::move(where)), info(what), rows(row_count) {
    check(rows > 0 && info.row_bytes() > 0, "a shard has rows");
    check(info.mean.size() == info.channels && info.stddev.size() == info.channels,
          "mean and deviation for every channel");
    check(!info.classes.empty(), "a shard has classes");
    buffer.reserve(std::max(kBufferBytes, info.row_bytes()));
  }

  ~Impl() {
    const h5::Session session;
    images.reset();
    file.reset();
  }

  Creation creation() const { return {file.get(), path}; }

  void create() {
    const h5::Session session;
    const h5::Properties access = h5::file_access();
    H5Pset_alignment(access.get(), 16 * kPage, kPage);  // the pixels begin at a page
    file =
        h5::File(H5Fcreate(pending.temporary().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()));
    if (!file) h5::refuse_with_cause(path, "cannot be created");
    write_description(creation(), info);
    const hsize_t shape[] = {rows, info.height, info.width, info.channels};
    images = creation().data_set("images", H5T_STD_U8LE, shape);
  }

  void flush() {
    const std::size_t count = buffer.size() / info.row_bytes();
    if (count == 0) return;
    const h5::Session session;
    const hsize_t start[] = {stored, 0, 0, 0};
    const hsize_t extent[] = {count, info.height, info.width, info.channels};
    const h5::Space space(H5Dget_space(images.get()));
    const h5::Space memory(H5Screate_simple(4, extent, nullptr));
    H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start, nullptr, extent, nullptr);
    creation().done(H5Dwrite(images.get(), H5T_NATIVE_UINT8, memory.get(), space.get(), H5P_DEFAULT,
                             buffer.data()));
    stored += count;
    buffer.clear();
  }

  void close() {
    const h5::Session session;
    creation().write_whole("labels", H5T_STD_I32LE, H5T_NATIVE_INT32, labels.data(), rows);
    creation().write_whole("crc32c", H5T_STD_U32LE, H5T_NATIVE_UINT32, crcs.data(), rows);
    images.reset();
    creation().done(H5Fclose(file.release()));
  }
};

ShardWriter::ShardWriter(std::filesystem::path path, const DataSetInfo& info, std::size_t rows)
    : impl_(std::make_unique<Impl>(std::move(path), info, rows)) {
  impl_->create();
}

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
  self.crcs.push_back(crc32c(image.data(), image.size()));
}

void ShardWriter::finish() {
  Impl& self = *impl_;
  check(self.labels.size() == self.rows, "as many rows as the shard was made for");
  self.flush();
  self.close();
  self.pending.commit();
}

}  // namespace lockstep::data
