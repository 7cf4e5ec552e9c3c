#include "hdf5.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/core.h>
#include <hdf5.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::train::hdf5 {
namespace {

template <auto Release>
using Id = Owned<hid_t, Release, static_cast<hid_t>(-1)>;
using FileId = Owned<std::int64_t, close_file, -1>;
using PropertyId = Id<H5Pclose>;
using SpaceId = Id<H5Sclose>;
using SetId = Id<H5Dclose>;
using GroupId = Id<H5Gclose>;
using AttributeId = Id<H5Aclose>;
using TypeId = Id<H5Tclose>;

std::vector<hsize_t> extents(std::span<const std::size_t> shape) {
  return {shape.begin(), shape.end()};
}

herr_t add_name(hid_t, const char* name, const H5L_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

// Errors are thrown here, not printed by HDF5.
void silence() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

std::int64_t text_type(std::size_t bytes) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  if (type >= 0 && (H5Tset_size(type, bytes) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
    H5Tclose(type);
    return -1;
  }
  return type;
}

}  // namespace

void close_file(std::int64_t id) { H5Fclose(id); }

File File::open(const std::string& path) {
  silence();
  File file(path);
  const PropertyId access(file.checked(H5Pcreate(H5P_FILE_ACCESS), "prepare the file"));
  // Not every shared file system knows locks, and a finished checkpoint needs none.
  file.checked(H5Pset_file_locking(access.get(), false, true), "prepare the file");
  file.id_ =
      FileId(file.checked(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), "open the file"));
  return file;
}

File File::in_memory(const std::string& path, std::size_t bytes, std::size_t user_block) {
  silence();
  File file(path);
  const PropertyId creation(file.checked(H5Pcreate(H5P_FILE_CREATE), "prepare the file"));
  file.checked(H5Pset_userblock(creation.get(), user_block), "reserve the user block");
  const PropertyId access(file.checked(H5Pcreate(H5P_FILE_ACCESS), "prepare the file"));
  file.checked(H5Pset_fapl_core(access.get(), bytes, false), "keep the file in memory");
  file.id_ = FileId(file.checked(
      H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), "create the file"));
  return file;
}

std::span<char> File::image() {
  checked(H5Fflush(id_.get(), H5F_SCOPE_LOCAL), "finish the file");
  hsize_t size = 0;
  checked(H5Fget_filesize(id_.get(), &size), "measure the file");
  void* handle = nullptr;
  checked(H5Fget_vfd_handle(id_.get(), H5P_DEFAULT, &handle), "reach the file in memory");
  return {*static_cast<char**>(handle), static_cast<std::size_t>(size)};
}

void File::make_group(const std::string& name) {
  const GroupId group(
      checked(H5Gcreate2(id_.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
              "make group " + name));
}

void File::write(const std::string& name, std::span<const std::size_t> shape,
                 std::span<const float> values) {
  write_raw(name, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, shape, values.data());
}

void File::write(const std::string& name, const std::vector<std::string>& texts) {
  std::size_t longest = 0;
  for (const std::string& text : texts) longest = std::max(longest, text.size());
  const std::size_t width = longest + 1;
  std::vector<char> characters(texts.size() * width);
  for (std::size_t i = 0; i < texts.size(); ++i)
    std::copy(texts[i].begin(), texts[i].end(), &characters[i * width]);
  const TypeId type(checked(text_type(width), "prepare " + name));
  const std::size_t count = texts.size();
  write_raw(name, type.get(), type.get(), {&count, 1}, characters.data());
}

void File::write_bytes(const std::string& name, std::string_view bytes) {
  const std::size_t count = bytes.size();
  write_raw(name, H5T_STD_U8LE, H5T_NATIVE_UINT8, {&count, 1}, bytes.data());
}

void File::write_raw(const std::string& name, std::int64_t stored_type, std::int64_t memory_type,
                     std::span<const std::size_t> shape, const void* values) {
  const auto sizes = extents(shape);
  const SpaceId space(checked(
      H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), "describe " + name));
  // Without times, the same state gives the same bytes.
  const PropertyId creation(checked(H5Pcreate(H5P_DATASET_CREATE), "prepare " + name));
  checked(H5Pset_obj_track_times(creation.get(), false), "prepare " + name);
  const SetId set(checked(H5Dcreate2(id_.get(), name.c_str(), stored_type, space.get(), H5P_DEFAULT,
                                     creation.get(), H5P_DEFAULT),
                          "make data set " + name));
  checked(H5Dwrite(set.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values),
          "write data set " + name);
}

std::vector<std::string> File::names(const std::string& group) const {
  std::vector<std::string> found;
  const GroupId opened(
      checked(H5Gopen2(id_.get(), group.c_str(), H5P_DEFAULT), "open group " + group));
  checked(H5Literate(opened.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add_name, &found),
          "list group " + group);
  return found;
}

std::vector<std::size_t> File::shape(const std::string& name) const {
  const SetId set(checked(H5Dopen2(id_.get(), name.c_str(), H5P_DEFAULT), "open data set " + name));
  const SpaceId space(checked(H5Dget_space(set.get()), "look at " + name));
  const auto rank = checked(H5Sget_simple_extent_ndims(space.get()), "look at " + name);
  std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
  checked(H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr), "look at " + name);
  return {sizes.begin(), sizes.end()};
}

void File::read(const std::string& name, std::span<float> values) const {
  const auto sizes = shape(name);
  const std::size_t count =
      std::accumulate(sizes.begin(), sizes.end(), std::size_t{1}, std::multiplies<>());
  require(count == values.size(), fmt::format("{}: data set {} holds {} values where {} belong",
                                              path_, name, count, values.size()));
  const SetId set(checked(H5Dopen2(id_.get(), name.c_str(), H5P_DEFAULT), "open data set " + name));
  checked(H5Dread(set.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
          "read data set " + name);
}

std::vector<std::string> File::texts(const std::string& name) const {
  const auto sizes = shape(name);
  require(sizes.size() == 1, fmt::format("{}: data set {} is no list", path_, name));
  const SetId set(checked(H5Dopen2(id_.get(), name.c_str(), H5P_DEFAULT), "open data set " + name));
  const TypeId type(checked(H5Dget_type(set.get()), "look at " + name));
  const std::size_t width = H5Tget_size(type.get());
  std::vector<char> characters(sizes[0] * width);
  checked(H5Dread(set.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, characters.data()),
          "read data set " + name);
  std::vector<std::string> found;
  for (std::size_t i = 0; i < sizes[0]; ++i) {
    const std::string_view text(&characters[i * width], width);
    found.emplace_back(text.substr(0, text.find('\0')));
  }
  return found;
}

std::string File::bytes(const std::string& name) const {
  const auto sizes = shape(name);
  require(sizes.size() == 1, fmt::format("{}: data set {} is no list", path_, name));
  const SetId set(checked(H5Dopen2(id_.get(), name.c_str(), H5P_DEFAULT), "open data set " + name));
  std::string found(sizes[0], '\0');
  checked(H5Dread(set.get(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, found.data()),
          "read data set " + name);
  return found;
}

void File::set(const std::string& name, const std::string& value) {
  // HDF5 knows no empty text: the terminating zero is stored with it.
  const TypeId type(checked(text_type(value.size() + 1), "prepare " + name));
  set_raw(name, type.get(), 1, value.c_str());
}

void File::set(const std::string& name, std::uint64_t value) {
  set_raw(name, H5T_NATIVE_UINT64, 1, &value);
}

void File::set(const std::string& name, double value) {
  set_raw(name, H5T_NATIVE_DOUBLE, 1, &value);
}

void File::set(const std::string& name, const std::vector<float>& values) {
  set_raw(name, H5T_NATIVE_FLOAT, values.size(), values.data());
}

bool File::has(const std::string& name) const {
  return checked(H5Aexists(id_.get(), name.c_str()), "look for attribute " + name) > 0;
}

std::string File::text(const std::string& name) const {
  const AttributeId attribute(
      checked(H5Aopen(id_.get(), name.c_str(), H5P_DEFAULT), "find attribute " + name));
  const TypeId type(checked(H5Aget_type(attribute.get()), "look at attribute " + name));
  std::string value(H5Tget_size(type.get()), '\0');
  checked(H5Aread(attribute.get(), type.get(), value.data()), "read attribute " + name);
  value.resize(std::min(value.find('\0'), value.size()));
  return value;
}

std::uint64_t File::count(const std::string& name) const {
  std::uint64_t value = 0;
  require(attribute_size(name) == 1, fmt::format("{}: {} is no single value", path_, name));
  get_raw(name, H5T_NATIVE_UINT64, &value);
  return value;
}

double File::real(const std::string& name) const {
  double value = 0;
  require(attribute_size(name) == 1, fmt::format("{}: {} is no single value", path_, name));
  get_raw(name, H5T_NATIVE_DOUBLE, &value);
  return value;
}

std::vector<float> File::reals(const std::string& name) const {
  std::vector<float> values(attribute_size(name));
  get_raw(name, H5T_NATIVE_FLOAT, values.data());
  return values;
}

std::int64_t File::checked(std::int64_t result, const std::string& what) const {
  if (result >= 0) return result;
  const std::string why = hdf5_cause();
  throw InputError(
      fmt::format("{}: cannot {} (HDF5{})", path_, what, why.empty() ? "" : ": " + why));
}

void File::set_raw(const std::string& name, std::int64_t type, std::size_t count,
                   const void* values) {
  const hsize_t size = count;
  const SpaceId space(checked(H5Screate_simple(1, &size, nullptr), "describe " + name));
  const AttributeId attribute(
      checked(H5Acreate2(id_.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
              "make attribute " + name));
  checked(H5Awrite(attribute.get(), type, values), "write attribute " + name);
}

void File::get_raw(const std::string& name, std::int64_t type, void* values) const {
  const AttributeId attribute(
      checked(H5Aopen(id_.get(), name.c_str(), H5P_DEFAULT), "find attribute " + name));
  checked(H5Aread(attribute.get(), type, values), "read attribute " + name);
}

std::size_t File::attribute_size(const std::string& name) const {
  const AttributeId attribute(
      checked(H5Aopen(id_.get(), name.c_str(), H5P_DEFAULT), "find attribute " + name));
  const SpaceId space(checked(H5Aget_space(attribute.get()), "look at attribute " + name));
  return static_cast<std::size_t>(
      checked(H5Sget_simple_extent_npoints(space.get()), "look at attribute " + name));
}

}  // namespace lockstep::train::hdf5
