#include "shard_hdf5.hpp"

#include <fmt/core.h>

#include <cstring>

#include "lockstep/base/error.hpp"

namespace lockstep::data::h5 {
namespace {

constexpr std::size_t kMostStrings = 1 << 20, kLongestString = 1 << 10;

std::string trimmed(const char* text, std::size_t size, H5T_str_t padding) {
  std::string result(text, strnlen(text, size));
  if (padding == H5T_STR_SPACEPAD) result.erase(result.find_last_not_of(' ') + 1);
  return result;
}

}  // namespace

Session::Session() : lock_(hdf5_mutex()) {
  H5Eget_auto2(H5E_DEFAULT, &printer_, &printer_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Session::~Session() { H5Eset_auto2(H5E_DEFAULT, printer_, printer_data_); }

void refuse(const std::filesystem::path& path, std::string_view what) {
  throw InputError(fmt::format("{}: {}", path.string(), what));
}

void refuse_with_cause(const std::filesystem::path& path, std::string_view what) {
  const std::string why = hdf5_cause();
  refuse(path, why.empty() ? std::string(what) : fmt::format("{} (HDF5: {})", what, why));
}

Properties file_access() {
  Properties access(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_file_locking(access.get(), false, true);
  return access;
}

Item Item::data_set(hid_t file, const std::filesystem::path& path, const std::string& name) {
  Item item(path, "the data set /" + name);
  if (H5Lexists(file, name.c_str(), H5P_DEFAULT) <= 0) item.refuse("is missing");
  item.data_ = Data(H5Dopen2(file, name.c_str(), H5P_DEFAULT));
  if (!item.data_) refuse_with_cause(path, item.label_ + " cannot be opened");
  item.type_ = Type(H5Dget_type(item.data_.get()));
  item.space_ = Space(H5Dget_space(item.data_.get()));
  if (!item.type_ || !item.space_) refuse_with_cause(path, item.label_ + " cannot be read");
  return item;
}

Item Item::attribute(hid_t file, const std::filesystem::path& path, const std::string& name) {
  Item item(path, fmt::format("the attribute '{}'", name));
  if (H5Aexists(file, name.c_str()) <= 0) item.refuse("is missing");
  item.attribute_ = Attribute(H5Aopen(file, name.c_str(), H5P_DEFAULT));
  if (!item.attribute_) refuse_with_cause(path, item.label_ + " cannot be opened");
  item.type_ = Type(H5Aget_type(item.attribute_.get()));
  item.space_ = Space(H5Aget_space(item.attribute_.get()));
  if (!item.type_ || !item.space_) refuse_with_cause(path, item.label_ + " cannot be read");
  return item;
}

void Item::refuse(std::string_view what) const {
  h5::refuse(path_, fmt::format("{} {}", label_, what));
}

void Item::expect_type(const NumberType& type) const {
  const hid_t id = type_.get();
  const bool kind = H5Tget_class(id) == type.kind;
  const bool width = type.bytes == 0 || H5Tget_size(id) == type.bytes;
  const bool sign = type.kind != H5T_INTEGER || type.bytes == 0 ||
                    type.has_sign == (H5Tget_sign(id) == H5T_SGN_2);
  if (!kind || !width || !sign) refuse(fmt::format("has another type than {}", type.name));
}

std::vector<hsize_t> Item::expect_rank(int rank) const {
  const int found = H5Sget_simple_extent_ndims(space_.get());
  if (found != rank || H5Sget_simple_extent_type(space_.get()) == H5S_NULL) {
    refuse(fmt::format("has {} dimensions where {} are expected", found, rank));
  }
  std::vector<hsize_t> dimensions(static_cast<std::size_t>(rank));
  H5Sget_simple_extent_dims(space_.get(), dimensions.data(), nullptr);
  return dimensions;
}

void Item::read(hid_t memory_type, void* to) const {
  const herr_t status = data_ ? H5Dread(data_.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to)
                              : H5Aread(attribute_.get(), memory_type, to);
  if (status < 0) refuse_with_cause(path_, label_ + " cannot be read");
}

std::vector<std::string> Item::read_strings() const {
  if (H5Tget_class(type_.get()) != H5T_STRING) refuse("has another type than string");
  const auto count = static_cast<std::size_t>(H5Sget_simple_extent_npoints(space_.get()));
  const std::size_t size = H5Tget_size(type_.get());
  // A damaged file may claim any numbers, and memory is taken before HDF5 finds out.
  if (count > kMostStrings || size > kLongestString) {
    refuse(fmt::format("has {} strings of {} bytes; at most {} of {} are read", count, size,
                       kMostStrings, kLongestString));
  }
  std::vector<std::string> strings;
  if (H5Tis_variable_str(type_.get()) > 0) {
    std::vector<char*> pointers(count, nullptr);
    read(type_.get(), pointers.data());
    for (const char* text : pointers) strings.emplace_back(text == nullptr ? "" : text);
    H5Dvlen_reclaim(type_.get(), space_.get(), H5P_DEFAULT, pointers.data());
    return strings;
  }
  std::vector<char> characters(count * size);
  read(type_.get(), characters.data());
  for (std::size_t i = 0; i < count; ++i) {
    strings.push_back(trimmed(&characters[i * size], size, H5Tget_strpad(type_.get())));
  }
  return strings;
}

}  // namespace lockstep::data::h5
