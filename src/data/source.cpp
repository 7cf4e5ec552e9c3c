#include "lockstep/data/source.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.hpp"
#include "source_files.hpp"

namespace lockstep::data {
namespace fs = std::filesystem;

namespace {

/// The original archives unpack into a folder of their own; both it and its parent are accepted.
fs::path inside(const fs::path& folder, const char* name) {
  return fs::is_directory(folder / name) ? folder / name : folder;
}

bool has_idx_files(const fs::path& folder) {
  for (const std::string& name : file_names(folder))
    if (name.find("idx3-ubyte") != std::string::npos) return true;
  return false;
}

}  // namespace

std::string Source::read_file(std::size_t) const { return {}; }

std::vector<std::string> source_kinds() {
  return {"classes", "cifar10", "cifar100", "idx", "shapes"};
}

std::string guess_source(const fs::path& folder) {
  require_folder(folder);
  if (fs::exists(inside(folder, "cifar-10-batches-bin") / "data_batch_1.bin")) return "cifar10";
  if (fs::exists(inside(folder, "cifar-100-binary") / "train.bin")) return "cifar100";
  return has_idx_files(folder) ? "idx" : "classes";
}

std::unique_ptr<Source> open_source(const std::string& kind, const fs::path& folder) {
  require_folder(folder);
  if (kind == "classes") return open_class_folders(folder);
  if (kind == "cifar10") return open_cifar10(inside(folder, "cifar-10-batches-bin"));
  if (kind == "cifar100") return open_cifar100(inside(folder, "cifar-100-binary"));
  if (kind == "idx") return open_idx(folder);
  throw InputError(fmt::format("no images of kind \"{}\" can be read from a folder; known are {}",
                               kind, fmt::join(source_kinds(), ", ")));
}

void require_folder(const fs::path& folder) {
  std::error_code reason;
  const fs::file_status status = fs::status(folder, reason);
  require(fs::exists(status), fmt::format("{}: no such folder{}", folder.string(),
                                          reason ? " (" + reason.message() + ")" : ""));
  require(fs::is_directory(status),
          fmt::format("{}: is a file; name the folder that holds the images", folder.string()));
}

std::vector<std::string> file_names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : sorted_entries(folder))
    if (entry.is_regular_file()) names.push_back(entry.path().filename().string());
  return names;
}

std::vector<fs::directory_entry> sorted_entries(const fs::path& folder) {
  std::error_code reason;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator at(folder, reason), end; !reason && at != end; at.increment(reason))
    if (!at->path().filename().string().starts_with('.')) entries.push_back(*at);
  require(!reason, fmt::format("{}: {}", folder.string(), reason.message()));
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace lockstep::data
