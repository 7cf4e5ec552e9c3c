#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <unistd.h>

#include "lockstep/base/error.hpp"

// What the targets share; each is a program of its own (libFuzzer), and includes this once.
namespace lockstep::fuzz {

/// Inputs to begin with.
std::vector<std::string> seeds();
/// One input. InputError is a good answer; any other exception, a crash, a hang or a memory of
/// hundreds of megabytes is a finding.
void one(std::span<const std::uint8_t> bytes);

/// A folder in memory, which is gone when the program is.
class Scratch {
 public:
  Scratch() : path_(fmt::format("/dev/shm/lockstep-fuzz-{}", ::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Scratch() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  std::filesystem::path write(const std::string& name, std::span<const std::uint8_t> bytes) const {
    std::ofstream file(path_ / name, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void require_law(bool holds, const char* law) {
  if (holds) return;
  std::fputs(law, stderr);
  std::abort();
}

inline std::string text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace lockstep::fuzz

/// SEEDS=folder: the seeds are written there, and nothing else is done.
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
