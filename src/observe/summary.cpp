#include "lockstep/observe/summary.hpp"

#include <nlohmann/json.hpp>

#include "lockstep/base/files/files.hpp"

namespace lockstep::observe {

std::string to_json(const Summary& summary) { return fields_to_json(summary, true) + "\n"; }

Summary read_summary(const std::filesystem::path& path) {
  return read_fields<Summary>(parse_json<nlohmann::json>(read_text(path), path.string()),
                              path.string());
}

}  // namespace lockstep::observe
