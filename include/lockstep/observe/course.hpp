#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "lockstep/observe/records.hpp"

namespace lockstep::observe {

/// What metrics.jsonl says about a run, but for its single steps.
struct Course {
  std::uint64_t steps = 0;      ///< that were done
  std::uint64_t newest_ms = 0;  ///< when the newest record was written, since 1970
  std::vector<StartRecord> starts;
  std::vector<EpochRecord> epochs;
  std::vector<ResumeRecord> resumes;
  std::optional<EndRecord> end;  ///< of the newest start
  StrangeLines strange;          ///< other programs may have written to it
};

/// Without a file, nothing has happened. Throws InputError when it cannot be read.
Course read_course(const std::filesystem::path& metrics);

}  // namespace lockstep::observe
