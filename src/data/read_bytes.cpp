#include "read_bytes.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/base/io.hpp"
#include "shard_file.hpp"

namespace lockstep::data {
namespace {

[[noreturn]] void refuse_unread(const ShardFile& file, std::size_t row, std::string_view why) {
  const bool copied = file.staged != nullptr;
  h5::refuse(
      file.path,
      fmt::format("row {} cannot be read{}: {}", row,
                  copied ? fmt::format(" from its copy {}", file.staged->path().string()) : "",
                  why));
}

constexpr const char* kShorter = "the file has become shorter";
constexpr std::size_t kPageBytes = 4096;

}  // namespace

Mapping::Mapping(int descriptor, const std::string& name) : descriptor_(descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && status.st_size > 0) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
  }
  if (data_ == nullptr || data_ == MAP_FAILED)
    throw InputError(fmt::format("{}: cannot be mapped: {}; data.read = pread reads it otherwise",
                                 name, std::strerror(errno)));
  guard_.emplace(data_, size_);
}

Mapping::~Mapping() {
  guard_.reset();
  ::munmap(data_, size_);
}

const std::uint8_t* Mapping::bytes(std::uint64_t begin, std::uint64_t end) const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < end ||
      size_ < end)
    return nullptr;
  return static_cast<const std::uint8_t*>(data_) + begin;
}

const std::uint8_t* mapped_bytes(const ShardFile& file, std::size_t row, std::uint64_t offset,
                                 std::size_t bytes) {
  if (!file.mapping) return nullptr;
  const std::uint64_t begin = file.offset + offset;
  if (file.staged && !file.staged->ensure(begin, begin + bytes)) return nullptr;
  const std::uint8_t* found = file.mapping->bytes(begin, begin + bytes);
  if (found == nullptr) refuse_unread(file, row, kShorter);
  // Where no checksum follows, zeros would pass for pixels.
  const volatile std::uint8_t* page = found;
  for (std::size_t at = 0; at < bytes; at += kPageBytes) static_cast<void>(page[at]);
  static_cast<void>(page[bytes - 1]);
  require_read(file, row);
  return found;
}

void require_read(const ShardFile& file, std::size_t row) {
  // Only a checksum would notice other bytes.
  if (file.foreign() && !file.staged)
    require_same(stamp_of(file.descriptor.get(), file.path), file.stamp, file.path,
                 fmt::format("row {}", row));
  if (file.mapping && file.mapping->failed())
    refuse_unread(file, row, "its pages are gone (the file was cut off, or its disk fails)");
}

void read_bytes(const ShardFile& file, std::size_t row, std::uint64_t offset,
                std::span<std::uint8_t> to) {
  if (const std::uint8_t* mapped = mapped_bytes(file, row, offset, to.size())) {
    std::memcpy(to.data(), mapped, to.size());
    return require_read(file, row);
  }
  const std::uint64_t begin = file.offset + offset;
  const bool in_copy = file.staged && file.staged->ensure(begin, begin + to.size());
  const int descriptor = in_copy ? file.staged->descriptor() : file.descriptor.get();
  if (read_all_at(descriptor, to.data(), to.size(), begin) != to.size()) {
    const std::string why = errno == 0 ? kShorter : std::strerror(errno);
    if (in_copy) refuse_unread(file, row, why);
    h5::refuse(file.path, fmt::format("row {} cannot be read: {}", row, why));
  }
  require_read(file, row);
}

void ask_for_bytes(const ShardFile& file, std::uint64_t offset, std::size_t bytes) {
  const std::uint64_t begin = file.offset + offset;
  if (file.staged) {
    file.staged->ensure(begin, begin + bytes);
  } else {
    ::posix_fadvise(file.descriptor.get(), static_cast<off_t>(begin), static_cast<off_t>(bytes),
                    POSIX_FADV_WILLNEED);
  }
}

}  // namespace lockstep::data
