#include "shard_skeleton.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "shard_file.hpp"
#include "shard_hdf5.hpp"

namespace lockstep::data {
namespace {

constexpr hsize_t kPage = 4096;

class Skeleton {
 public:
  Skeleton(const std::filesystem::path& file, const std::filesystem::path& path) : path_(path) {
    const h5::Properties access = h5::file_access();
    H5Pset_alignment(access.get(), kJpegBytes, kPage);  // the pixels begin at a page
    file_ = h5::File(H5Fcreate(file.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()));
    done(file_ ? 0 : -1);
  }

  Places write(const DataSetInfo& info, hsize_t rows, hsize_t jpeg_bytes) {
    write_attributes(info);
    write_classes(info.classes);
    Places places;
    if (info.encoding == Encoding::jpeg) {
      const hsize_t offsets = rows + 1, sizes[] = {rows, 2};
      places.images = reserve("jpegs", H5T_NATIVE_UINT8, std::span(&jpeg_bytes, 1));
      places.offsets = reserve("offsets", H5T_NATIVE_UINT64, std::span(&offsets, 1));
      places.sizes = reserve("sizes", H5T_NATIVE_UINT16, sizes);
    } else {
      const hsize_t shape[] = {rows, info.height, info.width, info.channels};
      places.images = reserve("images", H5T_NATIVE_UINT8, shape);
    }
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
    const bool raw = info.encoding == Encoding::raw;
    const char* format = raw ? kShardFormat : kJpegShardFormat;
    const int version = raw ? kShardVersion : kJpegShardVersion;
    const h5::Space scalar(H5Screate(H5S_SCALAR));
    const h5::Type text = text_type(std::strlen(format));
    attribute("format", text.get(), scalar, format);
    attribute("format_version", H5T_NATIVE_INT, scalar, &version);
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

Places write_skeleton(const std::filesystem::path& file, const std::filesystem::path& path,
                      const DataSetInfo& info, std::size_t rows, std::uint64_t jpeg_bytes) {
  const h5::Session session;
  Places places = Skeleton(file, path).write(info, rows, jpeg_bytes);
  places.end = std::filesystem::file_size(file);
  return places;
}

}  // namespace lockstep::data
