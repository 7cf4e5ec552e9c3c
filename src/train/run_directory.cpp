#include "lockstep/train/run_directory.hpp"

#include <fmt/format.h>

#include "lockstep/base/error.hpp"

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

std::string first_free(const std::string& pattern) {
  const std::size_t at = pattern.find("{n}");
  if (at == std::string::npos) return pattern;
  for (std::size_t n = 1;; ++n) {
    const std::string path = pattern.substr(0, at) + std::to_string(n) + pattern.substr(at + 3);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return path;
  }
}

}  // namespace lockstep::train
