#include "data/bytes/file_bytes.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"

namespace lockstep::data {
namespace {

constexpr const char* became_shorter = "the file has become shorter";
constexpr std::size_t page_bytes = 4096;

}  // namespace

FileBytes::FileBytes(std::filesystem::path path, std::uint64_t begin, std::uint64_t length,
                     bool checksums)
    : path_(std::move(path)), begin_(begin), checksums_(checksums) {
  // Noting the time of each read would cost work for each row, and nothing uses it. Only the file's
  // owner may turn it off.
  descriptor_ = open_regular(path_, O_NOATIME);
  if (!descriptor_ && errno == EPERM) descriptor_ = open_regular(path_);
  if (!descriptor_) {
    const char* hint = errno == EMFILE ? " (raise 'ulimit -n' or pack into fewer shards)" : "";
    refuse(fmt::format("cannot be opened: {}{}", std::strerror(errno), hint));
  }
  stamp_ = stamp_of(descriptor_.get(), path_);
  if (stamp_.bytes < begin || stamp_.bytes - begin < length) {
    refuse(fmt::format("is truncated: {} bytes long, but its rows' {} bytes begin at {}",
                       stamp_.bytes, length, begin));
  }
}

void FileBytes::refuse(std::string_view what) const {
  throw InputError(fmt::format("{}: {}", path_.string(), what));
}

void FileBytes::refuse_unread(std::size_t row, std::string_view why, bool in_copy) const {
  refuse(fmt::format(
      "row {} cannot be read{}: {}", row,
      in_copy ? fmt::format(" from its copy {}", copy_->path().string()) : std::string(), why));
}

const std::uint8_t* FileBytes::mapped(std::size_t row, std::uint64_t offset,
                                      std::size_t bytes) const {
  if (!mapping_) return nullptr;
  const std::uint64_t begin = begin_ + offset;
  if (copy_ && !copy_->ensure(begin, begin + bytes)) return nullptr;
  const std::uint8_t* found = mapping_->bytes(begin, begin + bytes);
  if (found == nullptr) refuse_unread(row, became_shorter, copy_ != nullptr);
  // Without a checksum, zeros would pass for pixels.
  const volatile std::uint8_t* page = found;
  for (std::size_t at = 0; at < bytes; at += page_bytes) static_cast<void>(page[at]);
  static_cast<void>(page[bytes - 1]);
  require_read(row);
  return found;
}

void FileBytes::require_read(std::size_t row) const {
  // Without a checksum, changed bytes would not be noticed.
  if (!checksums_ && !copy_)
    require_same(stamp_of(descriptor_.get(), path_), stamp_, path_, fmt::format("row {}", row));
  if (mapping_ && mapping_->failed())
    refuse_unread(row, "its pages are gone (the file was cut off, or its disk fails)",
                  copy_ != nullptr);
}

void FileBytes::read(std::size_t row, std::uint64_t offset, std::span<std::uint8_t> to) const {
  if (const std::uint8_t* from = mapped(row, offset, to.size())) {
    std::memcpy(to.data(), from, to.size());
    return require_read(row);
  }
  const std::uint64_t begin = begin_ + offset;
  const bool in_copy = copy_ && copy_->ensure(begin, begin + to.size());
  const int descriptor = in_copy ? copy_->descriptor() : descriptor_.get();
  if (read_all_at(descriptor, to.data(), to.size(), begin) != to.size())
    refuse_unread(row, errno == 0 ? became_shorter : std::strerror(errno), in_copy);
  require_read(row);
}

void FileBytes::ask_for(std::uint64_t offset, std::size_t bytes) const {
  const std::uint64_t begin = begin_ + offset;
  if (copy_) {
    copy_->ensure(begin, begin + bytes);
  } else {
    ::posix_fadvise(descriptor_.get(), static_cast<off_t>(begin), static_cast<off_t>(bytes),
                    POSIX_FADV_WILLNEED);
  }
}

void FileBytes::map() {
  const int from = copy_ ? copy_->descriptor() : descriptor_.get();
  mapping_ = std::make_unique<Mapping>(from, path_.string());
}

CopiedFile& FileBytes::copy_to(const std::filesystem::path& directory) {
  copy_ = std::make_unique<CopiedFile>(path_, descriptor_.get(), directory);
  return *copy_;
}

}  // namespace lockstep::data
