#include "lockstep/observe/summary.hpp"

#include <fmt/core.h>

#include "lockstep/base/files/files.hpp"
#include "observe/json_fields.hpp"

namespace lockstep::observe {

std::string to_json(const Summary& summary) { return fields_to_json(summary, true) + "\n"; }

Summary read_summary(const std::filesystem::path& path) { return read_json_file<Summary>(path); }

}  // namespace lockstep::observe
