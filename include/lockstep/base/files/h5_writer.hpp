#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/files/h5.hpp"

namespace lockstep::h5 {

/// Keeps the memory of an image that was released for the next one: to get as many fresh pages from
/// the system can take longer than to fill them. **Thread safety:** any thread.
class SpareMemory {
 public:
  ~SpareMemory() { std::free(kept_.memory); }
  SpareMemory() = default;
  SpareMemory(const SpareMemory&) = delete;
  SpareMemory& operator=(const SpareMemory&) = delete;

  struct Block {  ///< of malloc()
    char* memory = nullptr;
    std::size_t bytes = 0;
  };
  Block take(std::size_t bytes);  ///< at least `bytes`, of any values; or nothing
  void keep(Block block);         ///< frees the one it had

 private:
  std::mutex mutex_;
  Block kept_;
};

/// A finished file in memory. It needs no HDF5 any more: any thread may read and release it.
class FileImage {
 public:
  std::span<char> bytes() const { return {memory_.get(), size_}; }

 private:
  friend class Writer;
  struct Release {
    std::size_t bytes;
    std::shared_ptr<SpareMemory> spare;
    void operator()(char* memory) const {
      spare ? spare->keep({memory, bytes}) : std::free(memory);
    }
  };
  std::unique_ptr<char, Release> memory_;
  std::size_t size_ = 0;
};

/// How a file stores texts of one length: each followed by a zero, or padded with zeros.
enum class Ending { zero, padding };

/// Builds an HDF5 file. The same calls give the same bytes: no times are stored. All methods throw
/// Error naming the file. The caller holds a Session as long as this lives.
class Writer {
 public:
  using Shape = std::span<const std::size_t>;  ///< none: one value, of no dimension

  /// A file in memory; take_image() returns it. So nothing can fail for lack of disk space: on a
  /// full disk HDF5 can neither close a file nor end the program cleanly afterwards.
  struct InMemory {
    std::size_t bytes = 0;       ///< about: of what HDF5 writes, so without reserved places
    std::size_t records = 2048;  ///< about: of these, HDF5's own; reserved places lie after them
    std::size_t user_block = 0;  ///< the first bytes, left to the caller
    /// What the memory of a file with reserved places is taken from, and goes back to.
    std::shared_ptr<SpareMemory> spare = nullptr;
  };
  static Writer in_memory(const std::filesystem::path& path, InMemory how);
  /// A file on disk at `file`; messages name `path`. Each data set gets its place when it is made
  /// and is not filled; one of `aligned` bytes or more begins at a page.
  static Writer on_disk(const std::filesystem::path& file, const std::filesystem::path& path,
                        std::size_t aligned);

  void make_group(const std::string& name);

  /// An attribute of the root. HDF5 stores at most 64 KiB in one.
  template <class Number>
  void attribute(const std::string& name, Shape shape, const Number* values) {
    make_attribute(name, memory_type<Number>(), shape, values);
  }
  void attribute(const std::string& name, Shape shape, const std::string& text, Ending ending);

  template <class Number>
  void data_set(const std::string& name, Shape shape, const Number* values) {
    write(make_data_set(name, memory_type<Number>(), shape), memory_type<Number>(), values);
  }
  void data_set(const std::string& name, const std::vector<std::string>& texts, Ending ending);

  /// Makes a data set without its values. Returns where the values belong, in bytes from the file's
  /// beginning; in memory, a multiple of 64. There they are of any values in take_image()'s bytes
  /// until the caller sets them.
  template <class Number>
  std::uint64_t reserve(const std::string& name, Shape shape) {
    return reserve(name, shape, memory_type<Number>());
  }
  std::uint64_t reserve(const std::string& name, Shape shape, Id type);  ///< HDF5's type

  /// The same for texts of `bytes` each, padded with zeros.
  std::uint64_t reserve_texts(const std::string& name, std::size_t count, std::size_t bytes);

  FileImage take_image();  ///< finishes the file in memory
  void close();            ///< finishes the file on disk

 private:
  explicit Writer(std::filesystem::path path) : path_(std::move(path)) {}
  Id done(Id result) const;
  Type text_type(std::size_t bytes, Ending ending) const;
  Space space_of(Shape shape) const;
  void make_attribute(const std::string& name, Id type, Shape shape, const void* values);
  /// `at_once`: it gets its place now, and no values.
  Data make_data_set(const std::string& name, Id type, Shape shape, bool at_once = false);
  void write(const Data& data, Id type, const void* values);
  std::uint64_t reserve(const Data& data, std::size_t bytes);

  struct Memory;
  std::filesystem::path path_;
  std::shared_ptr<Memory> memory_;  ///< of a file in memory; outlives the open file
  bool at_once_ = false;            ///< each data set gets its place when it is made
  File file_;
};

}  // namespace lockstep::h5
