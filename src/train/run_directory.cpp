#include "lockstep/train/run_directory.hpp"

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"

namespace lockstep::train {

void RunDirectory::require_unused() const {
  std::error_code ignored;
  for (const auto& path : {config(), metrics(), summary(), checkpoints()})
    require(!std::filesystem::exists(path, ignored),
            fmt::format("{} already holds a run, and nothing is written over: go on with it by "
                        "--resume auto, or choose another --out",
                        root_.string()));
}

void RunDirectory::require_unfinished() const {
  std::error_code ignored;
  require(!std::filesystem::exists(summary(), ignored),
          fmt::format("{} holds a finished run without a valid checkpoint: nothing is written "
                      "over; choose another --out",
                      root_.string()));
}

namespace {

/// True for the one that made it, of all that try at once; false when it was there.
bool make_first(const std::filesystem::path& directory) {
  std::error_code error;
  const bool made = std::filesystem::create_directory(directory, error);
  require(!error, fmt::format("{}: cannot be made: {}", directory.string(), error.message()));
  return made;
}

}  // namespace

std::string claim(const std::string& pattern) {
  const std::size_t at = pattern.find("{n}");
  if (at == std::string::npos) {
    const RunDirectory run(pattern);
    make_directories(run.root());
    require(make_first(run.checkpoints()),
            fmt::format("{}: another run has just begun here; choose another --out", pattern));
    return pattern;
  }
  for (std::size_t n = 1;; ++n) {
    const std::string path = pattern.substr(0, at) + std::to_string(n) + pattern.substr(at + 3);
    const std::filesystem::path parent = std::filesystem::path(path).parent_path();
    if (!parent.empty()) make_directories(parent);
    if (std::error_code none; std::filesystem::exists(path, none) || !make_first(path)) continue;
    make_directories(RunDirectory(path).checkpoints());
    return path;
  }
}

}  // namespace lockstep::train
