#pragma once

#include <hdf5.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/hdf5.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::data::h5 {

inline constexpr hid_t kNone = H5I_INVALID_HID;
using File = Owned<hid_t, H5Fclose, kNone>;
using Data = Owned<hid_t, H5Dclose, kNone>;
using Attribute = Owned<hid_t, H5Aclose, kNone>;
using Space = Owned<hid_t, H5Sclose, kNone>;
using Type = Owned<hid_t, H5Tclose, kNone>;
using Properties = Owned<hid_t, H5Pclose, kNone>;

/// Held by whoever calls HDF5, for as long as it does (handles are released under one, too): keeps
/// other threads out and the library from printing its errors.
class Session {
 public:
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
  H5E_auto2_t printer_ = nullptr;
  void* printer_data_ = nullptr;
};

/// Throws InputError: "<path>: <what>".
[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view what);

/// The same, followed by what HDF5 gave as the cause of the call that has just failed; any call in
/// between, also the release of a handle, would have wiped it out.
[[noreturn]] void refuse_with_cause(const std::filesystem::path& path, std::string_view what);

/// File access without locks: many parallel file systems have none, and a shard never changes.
Properties file_access();

/// A number's type in a file: its class, bytes, and (for integers) whether it has a sign; 0 bytes:
/// any width and sign.
struct NumberType {
  H5T_class_t kind = H5T_INTEGER;
  std::size_t bytes = 0;
  bool has_sign = true;
  const char* name = "";  ///< for messages
};

/// A data set or an attribute of an open file, read whole. All throw InputError naming file and
/// item when it is absent, or of another type or rank.
class Item {
 public:
  static Item data_set(hid_t file, const std::filesystem::path& path, const std::string& name);
  static Item attribute(hid_t file, const std::filesystem::path& path, const std::string& name);

  void expect_type(const NumberType& type) const;
  std::vector<hsize_t> expect_rank(int rank) const;  ///< the dimensions
  void read(hid_t memory_type, void* to) const;
  std::vector<std::string> read_strings() const;
  [[noreturn]] void refuse(std::string_view what) const;
  Data take_data() { return std::move(data_); }

 private:
  Item(const std::filesystem::path& path, std::string label)
      : path_(path), label_(std::move(label)) {}
  std::filesystem::path path_;
  std::string label_;  ///< "the data set /images"
  Data data_;
  Attribute attribute_;
  Type type_;
  Space space_;
};

}  // namespace lockstep::data::h5
