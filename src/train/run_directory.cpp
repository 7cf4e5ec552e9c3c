#include "lockstep/train/run_directory.hpp"

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"

namespace lockstep::train {

bool RunDirectory::holds_run() const {
  std::error_code ignored;
  for (const auto& path : {config(), metrics(), summary(), checkpoints()})
    if (std::filesystem::exists(path, ignored)) return true;
  return false;
}

void RunDirectory::create(bool resuming) const {
  require(resuming || !holds_run(),
          fmt::format("{} already holds a run, and nothing is written over: go on with it by "
                      "--resume auto, or choose another --out",
                      root_.string()));
  make_directories(checkpoints());
}

}  // namespace lockstep::train
