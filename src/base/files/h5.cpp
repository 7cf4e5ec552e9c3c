#include "lockstep/base/files/h5.hpp"

#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"

namespace lockstep::h5 {
namespace {

static_assert(std::is_same_v<Id, hid_t> && no_id == H5I_INVALID_HID);

// A virtual data set's sources are opened by HDF5 itself, which does not pass file_access() on: it
// would lock them, and give fill values, without a word, where it cannot, or where a file is
// already open without a lock. HDF5 reads this when it starts, which is later.
const int without_locks = ::setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);

constexpr std::size_t most_text_bytes = std::size_t{1} << 30;
constexpr int most_dimensions = H5S_MAX_RANK;

std::mutex& mutex() {
  static std::mutex one;
  return one;
}

/// The cause that HDF5 gives for the call that has just failed; empty when it gives none.
std::string cause() {
  std::string text;
  // The innermost record of the error stack is the cause; the others say which function called
  // which.
  const auto keep_innermost = [](unsigned depth, const H5E_error2_t* record, void* to) -> herr_t {
    if (depth == 0 && record->desc != nullptr) *static_cast<std::string*>(to) = record->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &text);
  return text;
}

std::string trimmed(const char* text, std::size_t size, H5T_str_t padding) {
  std::string result(text, strnlen(text, size));
  if (padding == H5T_STR_SPACEPAD) result.erase(result.find_last_not_of(' ') + 1);
  return result;
}

}  // namespace

void close_file(Id id) { H5Fclose(id); }
void close_group(Id id) { H5Gclose(id); }
void close_data(Id id) { H5Dclose(id); }
void close_attribute(Id id) { H5Aclose(id); }
void close_space(Id id) { H5Sclose(id); }
void close_type(Id id) { H5Tclose(id); }
void close_properties(Id id) { H5Pclose(id); }

Session::Session() : lock_(mutex()) {
  check(without_locks == 0, "the environment of HDF5");
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

void refuse(const std::filesystem::path& path, std::string_view what) {
  throw InputError(fmt::format("{}: {}", path.string(), what));
}

void refuse_with_cause(const std::filesystem::path& path, std::string_view what) {
  const std::string why = cause();
  refuse(path, why.empty() ? std::string(what) : fmt::format("{} (HDF5: {})", what, why));
}

std::string last_cause() {
  const std::string why = cause();
  return why.empty() ? "no reason given" : why;
}

Properties file_access() {
  Properties access(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_file_locking(access.get(), false, true);
  return access;
}

File open_file(const std::filesystem::path& path) {
  require_regular(path);
  const Properties access = file_access();
  File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  if (!file) refuse_with_cause(path, "cannot be opened; is it whole?");
  return file;
}

std::vector<std::string> names_in(const File& file, const std::filesystem::path& path,
                                  const std::string& group) {
  const auto add = [](hid_t, const char* name, const H5L_info_t*, void* names) -> herr_t {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
  };
  std::vector<std::string> found;
  const Group opened(H5Gopen2(file.get(), group.c_str(), H5P_DEFAULT));
  if (!opened) refuse_with_cause(path, fmt::format("the group /{} cannot be opened", group));
  if (H5Literate(opened.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &found) < 0)
    refuse_with_cause(path, fmt::format("the group /{} cannot be read", group));
  return found;
}

bool has_attribute(const File& file, const char* name) { return H5Aexists(file.get(), name) > 0; }

Id memory_type(NumberType::Kind kind, std::size_t bytes, bool has_sign) {
  if (kind == NumberType::Kind::real) return bytes == 4 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE;
  switch (bytes) {
    case 1:
      return has_sign ? H5T_NATIVE_INT8 : H5T_NATIVE_UINT8;
    case 2:
      return has_sign ? H5T_NATIVE_INT16 : H5T_NATIVE_UINT16;
    case 4:
      return has_sign ? H5T_NATIVE_INT32 : H5T_NATIVE_UINT32;
    default:
      return has_sign ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
  }
}

Item Item::data_set(Id file, const std::filesystem::path& path, const std::string& name) {
  Item item(path, "the data set /" + name);
  if (H5Lexists(file, name.c_str(), H5P_DEFAULT) <= 0) item.refuse("is missing");
  item.data_ = Data(H5Dopen2(file, name.c_str(), H5P_DEFAULT));
  if (!item.data_) refuse_with_cause(path, item.label_ + " cannot be opened");
  item.type_ = Type(H5Dget_type(item.data_.get()));
  item.space_ = Space(H5Dget_space(item.data_.get()));
  if (!item.type_ || !item.space_) refuse_with_cause(path, item.label_ + " cannot be read");
  return item;
}

Item Item::attribute(Id file, const std::filesystem::path& path, const std::string& name) {
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
  const Id id = type_.get();
  const bool whole = type.kind == NumberType::Kind::integer;
  const bool kind = H5Tget_class(id) == (whole ? H5T_INTEGER : H5T_FLOAT);
  const bool width = type.bytes == 0 || H5Tget_size(id) == type.bytes;
  const bool sign = !whole || type.bytes == 0 || type.has_sign == (H5Tget_sign(id) == H5T_SGN_2);
  if (!kind || !width || !sign) refuse(fmt::format("has a type other than {}", type.name));
}

std::vector<std::uint64_t> Item::expect_rank(int rank) const {
  const int found = H5Sget_simple_extent_ndims(space_.get());
  if (found != rank || H5Sget_simple_extent_type(space_.get()) == H5S_NULL) {
    refuse(fmt::format("has {} dimensions where {} are expected", found, rank));
  }
  hsize_t dimensions[most_dimensions] = {};
  H5Sget_simple_extent_dims(space_.get(), dimensions, nullptr);
  return {dimensions, dimensions + rank};
}

void Item::expect_plain() const {
  const Properties created(H5Dget_create_plist(data_.get()));
  if (H5Pget_layout(created.get()) != H5D_CONTIGUOUS || H5Pget_external_count(created.get()) != 0)
    refuse("does not lie in the file in one piece");
  const File file(H5Iget_file_id(data_.get()));
  hsize_t bytes = 0;
  H5Fget_filesize(file.get(), &bytes);
  if (count() > bytes / std::max<std::size_t>(1, H5Tget_size(type_.get())))
    refuse("is larger than the file");
}

std::vector<std::size_t> Item::shape() const {
  const auto dimensions = expect_rank(std::max(0, H5Sget_simple_extent_ndims(space_.get())));
  std::size_t product = 1;
  for (const std::uint64_t extent : dimensions) {
    if (extent != 0 && product > std::numeric_limits<std::size_t>::max() / extent)
      refuse("has more values than are possible");
    product *= extent;
  }
  return {dimensions.begin(), dimensions.end()};
}

std::size_t Item::count() const {
  if (H5Sget_simple_extent_type(space_.get()) == H5S_NULL) return 0;
  std::size_t product = 1;
  for (const std::size_t extent : shape()) product *= extent;
  return product;
}

std::size_t Item::count_up_to(std::size_t most) const {
  const std::size_t found = count();
  if (found > most) refuse(fmt::format("has {} values; at most {} are read", found, most));
  return found;
}

void Item::read_numbers(Id memory, std::size_t count, void* to) const {
  const std::size_t found = this->count();
  if (found != count) refuse(fmt::format("has {} values where {} are expected", found, count));
  read_raw(memory, to);
}

void Item::read_raw(Id memory, void* to) const { read_raw(memory, to, H5S_ALL, H5S_ALL); }

void Item::read_raw(Id memory, void* to, Id here, Id there) const {
  const herr_t status = data_ ? H5Dread(data_.get(), memory, here, there, H5P_DEFAULT, to)
                              : H5Aread(attribute_.get(), memory, to);
  if (status < 0) refuse_with_cause(path_, label_ + " cannot be read");
}

void Item::expect_string() const {
  if (H5Tget_class(type_.get()) != H5T_STRING) refuse("has a type other than string");
}

std::vector<std::string> Item::read_strings() const {
  expect_string();
  return strings_in(count(), H5S_ALL, H5S_ALL);
}

std::vector<std::string> Item::read_strings(std::size_t first, std::size_t count) const {
  expect_string();
  const std::vector<std::size_t> whole = shape();
  std::vector<hsize_t> start(whole.size(), 0), extent(whole.begin(), whole.end());
  check(!whole.empty() && data_, "a data set with rows");
  start[0] = first;
  extent[0] = count;
  std::size_t strings = 1;
  for (const hsize_t one : extent) strings *= one;
  const Space here(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr));
  const Space there(H5Scopy(space_.get()));
  if (H5Sselect_hyperslab(there.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(),
                          nullptr) < 0)
    refuse_with_cause(path_, label_ + " cannot be read");
  return strings_in(strings, here.get(), there.get());
}

std::vector<std::string> Item::strings_in(std::size_t strings, Id here, Id there) const {
  if (H5Tis_variable_str(type_.get()) <= 0)
    return fixed_strings_in(strings, longest_string, here, there);
  if (strings > most_strings)
    refuse(fmt::format("has {} values; at most {} are read", strings, most_strings));
  std::vector<char*> pointers(strings, nullptr);
  read_raw(type_.get(), pointers.data(), here, there);
  std::vector<std::string> texts;
  for (char* text : pointers) {
    texts.emplace_back(text == nullptr ? "" : text, 0, longest_string + 1);
    std::free(text);  // HDF5 takes them by malloc(); its call to release them has had two names
  }
  for (const std::string& text : texts)
    if (text.size() > longest_string)
      refuse(fmt::format("has a string of more than {} bytes", longest_string));
  return texts;
}

std::vector<std::string> Item::read_fixed_strings(std::size_t longest) const {
  expect_string();
  if (H5Tis_variable_str(type_.get()) != 0) refuse("has strings of variable length");
  return fixed_strings_in(count(), longest, H5S_ALL, H5S_ALL);
}

std::vector<std::string> Item::read_plain_strings() const {
  expect_string();
  if (H5Tis_variable_str(type_.get()) != 0) refuse("has strings of variable length");
  return read_fixed(count(), H5S_ALL, H5S_ALL);
}

std::vector<std::string> Item::fixed_strings_in(std::size_t strings, std::size_t longest, Id here,
                                                Id there) const {
  const std::size_t size = H5Tget_size(type_.get());
  // Checked first: the memory is allocated before HDF5 looks at what is in the file.
  if (strings > most_strings || size > longest || strings * size > most_text_bytes) {
    refuse(fmt::format("has {} strings of {} bytes; at most {} of {} are read", strings, size,
                       most_strings, longest));
  }
  return read_fixed(strings, here, there);
}

std::vector<std::string> Item::read_fixed(std::size_t strings, Id here, Id there) const {
  const std::size_t size = H5Tget_size(type_.get());
  std::vector<char> characters(strings * size);
  read_raw(type_.get(), characters.data(), here, there);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < strings; ++i)
    texts.push_back(trimmed(&characters[i * size], size, H5Tget_strpad(type_.get())));
  return texts;
}

std::string Item::text(std::size_t longest) const {
  expect_string();
  if (const std::size_t found = count(); found != 1)
    refuse(fmt::format("has {} strings where one is expected", found));
  return read_fixed_strings(longest).front();
}

}  // namespace lockstep::h5
