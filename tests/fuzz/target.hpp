#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.hpp"

// What the fuzz targets share. Each target is a separate program (for libFuzzer) and includes this
// once.
namespace lockstep::fuzz {

/// The inputs to begin with.
std::vector<std::string> seeds();
/// Tries one input. InputError is a valid result; any other exception, a crash, a hang or the use
/// of hundreds of megabytes is a finding.
void one(std::span<const std::uint8_t> bytes);

/// A folder in memory, which is removed when the program ends.
class Scratch {
 public:
  Scratch() : path_(fmt::format("/dev/shm/lockstep-fuzz-{}", ::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Scratch() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A file in the folder, with new content for each input. It stays open, which is much cheaper than
/// creating it again.
class ScratchFile {
 public:
  ScratchFile(const Scratch& folder, const std::string& name) : path_(folder.path() / name) {
    std::filesystem::create_directories(path_.parent_path());
    file_ = ::open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  }
  ~ScratchFile() { ::close(file_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  void put(std::span<const std::uint8_t> bytes) {
    if (::pwrite(file_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()) ||
        ::ftruncate(file_, static_cast<off_t>(bytes.size())) != 0)
      std::abort();
  }
  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return file_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
};

/// Takes an input's bytes in order; after the last one, byte() gives zeros and take() gives
/// nothing.
class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : left_(bytes) {}
  std::uint8_t byte() { return left_.empty() ? std::uint8_t{0} : take(1)[0]; }
  std::span<const std::uint8_t> take(std::size_t count) {
    const auto taken = left_.first(std::min(count, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  std::span<const std::uint8_t> rest() { return take(left_.size()); }

 private:
  std::span<const std::uint8_t> left_;
};

inline void require_law(bool holds, const char* law) {
  if (holds) return;
  std::fputs(law, stderr);
  std::abort();
}

inline std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

inline std::string text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace lockstep::fuzz

// The functions that libFuzzer calls.
extern "C" int LLVMFuzzerInitialize(int* count, char*** values);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// SEEDS=folder: only writes the seeds into this folder.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = std::getenv("SEEDS");
  if (folder == nullptr) return 0;
  std::filesystem::create_directories(folder);
  std::size_t number = 0;
  for (const std::string& seed : lockstep::fuzz::seeds())
    std::ofstream(std::filesystem::path(folder) / std::to_string(number++), std::ios::binary)
        << seed;
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    lockstep::fuzz::one({data, size});
  } catch (const lockstep::InputError&) {
  }
  return 0;
}
