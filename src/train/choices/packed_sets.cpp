#include "lockstep/train/choices/packed_sets.hpp"

#include <filesystem>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

bool holds_shards(const fs::path& folder) {
  std::error_code none;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none))
    if (at->path().extension() == ".h5") return true;
  return false;
}

}  // namespace

std::string packed_set(const std::string& path, PackedPart part) {
  if (path.empty() || holds_shards(path)) return path;
  const fs::path inner = fs::path(path) / (part == PackedPart::training ? "train" : "val");
  return holds_shards(inner) ? inner.string() : path;
}

void find_packed_sets(config::Config& config) {
  const std::string given = config.data.train;
  config.data.train = packed_set(given, PackedPart::training);
  if (!config.data.val.empty()) {
    config.data.val = packed_set(config.data.val, PackedPart::validation);
  } else if (config.data.train != given) {
    const std::string validation = packed_set(given, PackedPart::validation);
    if (validation != given) config.data.val = validation;
  }
}

}  // namespace lockstep::train
