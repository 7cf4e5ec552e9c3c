#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/data/pack.hpp"

namespace lockstep::data {
namespace fs = std::filesystem;

namespace {

constexpr const char* splits[] = {"train", "val"};
constexpr const char* skipped_list = "skipped.txt";

/// Only what pack itself may have written is ever replaced.
void require_only_shards(const fs::path& folder) {
  require(fs::is_directory(folder),
          fmt::format("{}: is a file where a folder of shards should come", folder.string()));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    require(entry.is_regular_file() && entry.path().extension() == ".h5",
            fmt::format("{}: is not a shard, so --force will not replace the folder that holds it; "
                        "choose another --out",
                        entry.path().string()));
}

}  // namespace

fs::path PackFolder::partial(const fs::path& folder) { return folder / ".partial"; }

PackFolder::PackFolder(fs::path folder, bool force) : folder_(std::move(folder)) {
  for (const char* split : splits) {
    if (!fs::exists(folder_ / split)) continue;
    require(force, fmt::format("{}: exists already; choose another --out, or replace the data set "
                               "with --force",
                               (folder_ / split).string()));
    require_only_shards(folder_ / split);
  }
  created_ = !fs::exists(folder_);
  make_directories(folder_);
  if (force) fs::remove_all(partial(folder_));
  std::error_code reason;
  const bool made = fs::create_directory(partial(folder_), reason);
  require(!reason, fmt::format("{}: {}", partial(folder_).string(), reason.message()));
  require(made, fmt::format("{}: exists already: another pack is writing there, or one was killed; "
                            "in that case remove it or use --force",
                            partial(folder_).string()));
  for (const char* split : splits) make_directories(partial(folder_) / split);
}

PackFolder::~PackFolder() {
  std::error_code ignored;
  fs::remove_all(partial(folder_), ignored);
  // Only an empty folder goes: after a commit it is not.
  if (created_) fs::remove(folder_, ignored);
}

void PackFolder::commit() {
  const fs::path from = partial(folder_);
  fs::remove(folder_ / skipped_list);
  if (fs::exists(from / skipped_list)) fs::rename(from / skipped_list, folder_ / skipped_list);
  for (const char* split : splits) {
    const fs::path target = folder_ / split;
    if (fs::exists(target)) fs::rename(target, from / (std::string("old-") + split));
    if (!fs::is_empty(from / split)) fs::rename(from / split, target);
  }
}

}  // namespace lockstep::data
