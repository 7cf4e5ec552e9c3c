#include "lockstep/train/decide/packed_sets.hpp"

#include <filesystem>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

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

bool holds_data_set(const fs::path& folder) {
  return holds_shards(folder) || holds_shards(folder / "train") || holds_shards(folder / "val");
}

std::string packed_set(const std::string& path, PackedPart part) {
  if (path.empty() || holds_shards(path)) return path;
  const fs::path inner = fs::path(path) / (part == PackedPart::training ? "train" : "val");
  return holds_shards(inner) ? inner.string() : path;
}

std::string given_set(const std::string& path, PackedPart part) {
  std::string found = packed_set(path, part);
  const bool training = part == PackedPart::training;
  const std::string other =
      packed_set(path, training ? PackedPart::validation : PackedPart::training);
  require(found != path || other == path,
          fmt::format("{}: has {}, but no {}", path, training ? "val/" : "train/",
                      training ? "train/" : "val/ (to validate on the training set, name it)"));
  return found;
}

DataSets find_data_sets(const DataSets& given) {
  DataSets found{.train = given_set(given.train, PackedPart::training),
                 .val = given_set(given.val, PackedPart::validation)};
  if (given.val.empty() && found.train != given.train) {
    const std::string validation = packed_set(given.train, PackedPart::validation);
    if (validation != given.train) found.val = validation;
  }
  return found;
}

}  // namespace lockstep::train
