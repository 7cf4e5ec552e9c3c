#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/hdf5.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::train::hdf5 {

void close_file(std::int64_t id);

/// A file with what a checkpoint needs of HDF5. It is written in memory and leaves it as one image,
/// because HDF5 does not survive a disk that fills up: it cannot close such a file, and crashes at
/// the program's end. While one lives it
/// holds hdf5_mutex(). All errors are InputError naming the file.
class File {
 public:
  static File open(const std::string& path);  ///< for reading
  /// An empty file in memory, of about `bytes` in the end; `path` only serves messages. Its first
  /// `user_block` bytes are left to the caller.
  static File in_memory(const std::string& path, std::size_t bytes, std::size_t user_block);

  void make_group(const std::string& name);
  void write(const std::string& name, std::span<const std::size_t> shape,
             std::span<const float> values);
  void write(const std::string& name, const std::vector<std::string>& texts);  ///< any text, no NUL
  void write_bytes(const std::string& name, std::string_view bytes);
  std::span<char> image();  ///< the finished file in memory; valid until the next call

  std::vector<std::string> names(const std::string& group) const;  ///< in order of name
  std::vector<std::size_t> shape(const std::string& name) const;
  void read(const std::string& name, std::span<float> values) const;  ///< of exactly this many

  std::vector<std::string> texts(const std::string& name) const;
  std::string bytes(const std::string& name) const;

  /// Attributes of the root. HDF5 stores at most 64 KiB in one.
  void set(const std::string& name, const std::string& value);
  void set(const std::string& name, std::uint64_t value);
  void set(const std::string& name, double value);
  void set(const std::string& name, const std::vector<float>& values);
  bool has(const std::string& name) const;
  std::string text(const std::string& name) const;
  std::uint64_t count(const std::string& name) const;
  double real(const std::string& name) const;
  std::vector<float> reals(const std::string& name) const;

 private:
  explicit File(std::string path) : path_(std::move(path)) {}
  std::int64_t checked(std::int64_t result, const std::string& what) const;
  void write_raw(const std::string& name, std::int64_t stored_type, std::int64_t memory_type,
                 std::span<const std::size_t> shape, const void* values);
  void set_raw(const std::string& name, std::int64_t type, std::size_t count, const void* values);
  void get_raw(const std::string& name, std::int64_t type, void* values) const;
  std::size_t attribute_size(const std::string& name) const;

  std::string path_;
  std::unique_lock<std::mutex> lock_{hdf5_mutex()};  // outlives the open file
  Owned<std::int64_t, close_file, -1> id_;
};

}  // namespace lockstep::train::hdf5
