#include "data/bytes/node_copier.hpp"

#include <fmt/core.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep::data {
namespace {

/// Bytes of memory that are free or can be freed.
std::uint64_t free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kilobytes = 0;
  while (file >> name >> kilobytes) {
    if (name == "MemAvailable:") return kilobytes * 1024;
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
