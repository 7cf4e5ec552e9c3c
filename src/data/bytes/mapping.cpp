#include "data/bytes/mapping.hpp"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.hpp"

namespace lockstep::data {

Mapping::Mapping(int descriptor, const std::string& name) : descriptor_(descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && status.st_size > 0) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
  }
  if (data_ == nullptr || data_ == MAP_FAILED)
    throw InputError(fmt::format("{}: cannot be mapped: {}; use data.read = pread instead", name,
                                 std::strerror(errno)));
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

}  // namespace lockstep::data
