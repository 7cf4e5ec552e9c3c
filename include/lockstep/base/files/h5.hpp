#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/base/owned.hpp"

// HDF5 files: owners of its handles, and checked reading of values from files that may claim
// anything about themselves.
namespace lockstep::h5 {

using Id = std::int64_t;  ///< HDF5's hid_t
inline constexpr Id no_id = -1;

void close_file(Id id);
void close_group(Id id);
void close_data(Id id);
void close_attribute(Id id);
void close_space(Id id);
void close_type(Id id);
void close_properties(Id id);

using File = Owned<Id, close_file, no_id>;
using Group = Owned<Id, close_group, no_id>;
using Data = Owned<Id, close_data, no_id>;
using Attribute = Owned<Id, close_attribute, no_id>;
using Space = Owned<Id, close_space, no_id>;
using Type = Owned<Id, close_type, no_id>;
using Properties = Owned<Id, close_properties, no_id>;

/// Hold one around every call of HDF5, including the release of handles. It keeps other threads
/// out, because many systems' HDF5 is not thread-safe, and keeps the library from printing its
/// errors. Not recursive.
class Session {
 public:
  Session();

 private:
  std::unique_lock<std::mutex> lock_;
};

/// Throws InputError: "<path>: <what>".
[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view what);

/// The same, followed by the cause that HDF5 gave for the call that has just failed. Call it at
/// once: any call in between, even the release of a handle, wipes the cause out.
[[noreturn]] void refuse_with_cause(const std::filesystem::path& path, std::string_view what);

/// The cause that HDF5 gave for the call that has just failed; "no reason given" if none. The same
/// warning holds.
std::string last_cause();

/// File access without locks: many parallel file systems have no locks, and finished files never
/// change.
Properties file_access();

/// Opens a file for reading. Throws InputError naming it. The caller holds a Session.
File open_file(const std::filesystem::path& path);

/// Names in a group, in order of name.
std::vector<std::string> names_in(const File& file, const std::filesystem::path& path,
                                  const std::string& group);

/// Whether the root has an attribute of that name.
bool has_attribute(const File& file, const char* name);

/// A number's type in a file: its class, bytes, and (for integers) whether it has a sign. 0 bytes:
/// any width and sign.
struct NumberType {
  enum class Kind { integer, real };
  Kind kind = Kind::integer;
  std::size_t bytes = 0;
  bool has_sign = true;
  const char* name = "";  ///< for messages
};

/// HDF5's name for a C++ number in memory: float, double, or an integer of 8, 16, 32 or 64 bits.
Id memory_type(NumberType::Kind kind, std::size_t bytes, bool has_sign);
template <class Number>
Id memory_type() {
  return memory_type(
      std::is_floating_point_v<Number> ? NumberType::Kind::real : NumberType::Kind::integer,
      sizeof(Number), std::is_signed_v<Number>);
}

/// Limits on the texts that are read, because a file may claim anything: their number, and bytes
/// each.
inline constexpr std::size_t most_strings = 1 << 20, longest_string = 1 << 10;

/// A data set or an attribute of an open file, read as a whole. All methods throw InputError naming
/// file and item when it is absent or has another type, rank or number of values. Nothing is
/// written beyond the caller's memory, whatever the file says.
class Item {
 public:
  static Item data_set(Id file, const std::filesystem::path& path, const std::string& name);
  static Item attribute(Id file, const std::filesystem::path& path, const std::string& name);

  void expect_type(const NumberType& type) const;
  std::vector<std::uint64_t> expect_rank(int rank) const;  ///< the dimensions
  /// Requires a data set that is one piece of this very file and no larger than the file. Otherwise
  /// filters or other files could turn it into more bytes.
  void expect_plain() const;
  std::vector<std::size_t> shape() const;  ///< of any rank; its product fits into size_t
  std::size_t count() const;               ///< values: the product of the shape

  /// Reads all values. There must be exactly numbers.size() of them.
  template <class Number>
  void read(std::span<Number> numbers) const {
    read_numbers(memory_type<Number>(), numbers.size(), numbers.data());
  }
  template <class Number>
  Number number() const {  ///< the only one
    Number value{};
    read(std::span(&value, 1));
    return value;
  }
  template <class Number>
  std::vector<Number> numbers(std::size_t most) const {  ///< all of them, at most `most`
    std::vector<Number> values(count_up_to(most));
    read(std::span(values));
    return values;
  }
  /// Of any length each, or of one length for all; at most longest_string.
  std::vector<std::string> read_strings() const;
  /// Those of [first, first + count) along the first dimension of a data set.
  std::vector<std::string> read_strings(std::size_t first, std::size_t count) const;
  /// Only of one length for all, at most `longest`.
  std::vector<std::string> read_fixed_strings(std::size_t longest) const;
  /// Of one length for all, of any number and length. REQUIRES: expect_plain(), so that they take
  /// no more memory than the file.
  std::vector<std::string> read_plain_strings() const;
  std::string text(std::size_t longest) const;  ///< the only one, of a fixed length
  [[noreturn]] void refuse(std::string_view what) const;
  Data take_data() { return std::move(data_); }

 private:
  Item(const std::filesystem::path& path, std::string label)
      : path_(path), label_(std::move(label)) {}
  void expect_string() const;
  std::size_t count_up_to(std::size_t most) const;
  void read_numbers(Id memory, std::size_t count, void* to) const;
  void read_raw(Id memory, void* to) const;
  /// `here`: the space of the memory; `there`: what of the data set is read.
  void read_raw(Id memory, void* to, Id here, Id there) const;
  std::vector<std::string> strings_in(std::size_t strings, Id here, Id there) const;
  std::vector<std::string> fixed_strings_in(std::size_t strings, std::size_t longest, Id here,
                                            Id there) const;
  std::vector<std::string> read_fixed(std::size_t strings, Id here, Id there) const;
  std::filesystem::path path_;
  std::string label_;  ///< "the data set /images"
  Data data_;
  Attribute attribute_;
  Type type_;
  Space space_;
};

}  // namespace lockstep::h5
