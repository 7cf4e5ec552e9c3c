#include "comm/two_level/node_segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/room.hpp"

// Why shared memory has no name. It comes from `memfd_create`, and the ranks open it through the
// first one's `/proc` entry: no file is left after a crash, and a container's small /dev/shm does
// not matter. Where a container forbids it, one line says so and sums are flat.

namespace lockstep::comm {
namespace {

// The first bytes of the memory, so that no process takes another one's: a process number means
// different processes in different containers.
using Token = std::uint64_t;

std::string reason() { return std::strerror(errno); }

std::size_t with_token(std::size_t bytes) { return bytes + page_bytes(); }

}  // namespace

void SharedMemory::Unmap::operator()(std::byte* data) const {
  ::munmap(data - with_token(0), with_token(bytes));
}

SharedMemory::SharedMemory(Descriptor file, std::size_t bytes) : file_(std::move(file)) {
  void* all =
      ::mmap(nullptr, with_token(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  require(all != MAP_FAILED, fmt::format("{} bytes cannot be mapped: {}", bytes, reason()));
  data_ = {static_cast<std::byte*>(all) + with_token(0), Unmap{bytes}};
}

SharedMemory SharedMemory::create(std::size_t bytes) {
  Descriptor file(::memfd_create("lockstep", MFD_CLOEXEC));
  require(static_cast<bool>(file), fmt::format("the system gives no shared memory: {}", reason()));
  const bool sized = ::ftruncate(file.get(), static_cast<off_t>(with_token(bytes))) == 0;
  require(sized, fmt::format("shared memory of {} bytes: {}", bytes, reason()));
  const int number = file.get();
  SharedMemory memory(std::move(file), bytes);
  std::random_device random;
  const Token token = (Token{random()} << 32) | random();
  std::memcpy(memory.data() - with_token(0), &token, sizeof token);
  memory.address_ = fmt::format("{} {} {}", ::getpid(), number, token);
  return memory;
}

SharedMemory SharedMemory::attach(const std::string& address, std::size_t bytes) {
  std::istringstream words(address);
  long process = 0;
  int number = 0;
  Token token = 0, found = 0;
  require(static_cast<bool>(words >> process >> number >> token), "no address of shared memory");
  const std::string path = fmt::format("/proc/{}/fd/{}", process, number);
  Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  require(static_cast<bool>(file), fmt::format("{} cannot be opened: {}", path, reason()));
  struct stat now {};
  require(::fstat(file.get(), &now) == 0 && S_ISREG(now.st_mode) &&
              ::pread(file.get(), &found, sizeof found, 0) == sizeof found && found == token &&
              static_cast<std::size_t>(now.st_size) == with_token(bytes),
          path + " is not the memory of a rank of this node");
  SharedMemory memory(std::move(file), bytes);
  memory.hide();
  return memory;
}

namespace {

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

std::size_t slot_bytes(std::size_t floats) { return whole_pages(floats * sizeof(float)); }

}  // namespace

std::size_t NodeSegment::bytes(std::size_t ranks, std::size_t slot_floats) {
  return whole_pages(ranks * sizeof(Counts)) + ranks * slots * slot_bytes(slot_floats);
}

float* NodeSegment::slot(std::size_t rank, std::uint64_t sum) const {
  std::byte* all = memory_.data() + whole_pages(ranks_ * sizeof(Counts));
  return reinterpret_cast<float*>(all + (rank * slots + sum % slots) * slot_bytes(slot_floats_));
}

// The memory begins with zeros, which are counts of 0.
NodeSegment::Count& NodeSegment::count(std::size_t rank, Mark mark) const {
  return reinterpret_cast<Counts*>(memory_.data())[rank].of_mark[static_cast<std::size_t>(mark)];
}

std::vector<std::size_t> NodeSegment::missing(Mark mark, std::uint64_t sum) const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < ranks_; ++rank)
    if (count(rank, mark).load() <= sum) ranks.push_back(rank);
  return ranks;
}

}  // namespace lockstep::comm
