#include "data/bytes/file_bytes.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "lockstep/base/cgroup.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/room.hpp"

namespace lockstep::data {
namespace {

constexpr const char* became_shorter = "the file has become shorter";

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
  for (std::size_t at = 0; at < bytes; at += page_bytes()) static_cast<void>(page[at]);
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

namespace {

/// Bytes of memory that are free or can be freed, on the machine and by the cgroup's limit.
std::uint64_t free_memory() {
  const std::uint64_t most =
      look_at_group().free_bytes.value_or(std::numeric_limits<std::uint64_t>::max());
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kilobytes = 0;
  while (file >> name >> kilobytes) {
    if (name == "MemAvailable:") return std::min(kilobytes * 1024, most);
    file.ignore(64, '\n');
  }
  return 0;
}

/// How much may be written there: most of what is free, and in memory (/dev/shm) not what programs
/// need.
std::uint64_t room_in(const std::filesystem::path& directory) {
  struct statvfs space {};
  if (::statvfs(directory.c_str(), &space) != 0)
    throw InputError(fmt::format("data.stage: {}: cannot find its free space: {}",
                                 directory.string(), std::strerror(errno)));
  std::uint64_t bytes = space.f_bavail * space.f_frsize;
  struct statfs kind {};
  constexpr long tmpfs = 0x01021994;
  if (::statfs(directory.c_str(), &kind) == 0 && kind.f_type == tmpfs)
    bytes = std::min(bytes, free_memory() / 10 * 8);
  return bytes / 100 * 95;
}

}  // namespace

NodeCopy NodeCopier::begin(std::span<FileBytes* const> files,
                           const std::filesystem::path& directory, std::span<const FilePart> parts,
                           std::uint64_t promised) {
  std::vector<CopiedFile*> copies;
  std::vector<std::vector<bool>> wanted(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    copies.push_back(&files[i]->copy_to(directory));
    wanted[i].resize(copies[i]->pieces(), false);
  }
  for (const FilePart& part : parts) {
    const std::uint64_t offset = files[part.file]->begin();
    const std::uint64_t last = (offset + part.bytes.end - 1) / CopiedFile::piece_bytes;
    for (std::uint64_t p = (offset + part.bytes.begin) / CopiedFile::piece_bytes; p <= last; ++p)
      wanted[part.file][p] = true;
  }
  NodeCopy copy;
  for (std::size_t i = 0; i < files.size(); ++i)
    for (std::uint64_t p = 0; p < wanted[i].size(); ++p) {
      if (!wanted[i][p]) continue;
      pieces_.push_back({copies[i], p});
      const std::uint64_t bytes =
          std::min(CopiedFile::piece_bytes, copies[i]->size() - p * CopiedFile::piece_bytes);
      copy.bytes += bytes;
      if (copies[i]->is_there(p)) copy.there += bytes;
    }
  const std::uint64_t room = room_in(directory);
  copy.available = room - std::min(room, promised);
  copy.fits = copy.bytes - copy.there <= copy.available;
  if (!copy.fits) {
    pieces_.clear();
    for (FileBytes* file : files) file->drop_copy();
  } else if (copy.there < copy.bytes) {
    thread_ = std::thread([this] { run(); });
  }
  return copy;
}

// The node's ranks begin at different places, so that they do not compete for each piece.
void NodeCopier::run() {
  const std::size_t count = pieces_.size();
  const std::size_t first = static_cast<std::size_t>(::getpid()) * 0x9E3779B1u % count;
  for (std::size_t i = 0; i < count && !stopping_; ++i) {
    const FilePiece& next = pieces_[(first + i) % count];
    if (next.file->copy(next.piece)) continue;
    log::warn(fmt::format("data.stage: copying was given up, the rest is read in place: {}",
                          next.file->problem()));
    return;
  }
}

void NodeCopier::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

double NodeCopier::share() const {
  const auto there = std::count_if(pieces_.begin(), pieces_.end(), [](const FilePiece& piece) {
    return piece.file->is_there(piece.piece);
  });
  return pieces_.empty() ? 0 : static_cast<double>(there) / static_cast<double>(pieces_.size());
}

}  // namespace lockstep::data
