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

}  // namespace lockstep::train
