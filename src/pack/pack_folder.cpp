#include "pack/pack_folder.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/files/rename.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/base/text/join.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

constexpr const char* splits[] = {"train", "val"};
constexpr const char* skipped_list = "skipped.txt";
constexpr const char* plan_file = "plan.txt";
constexpr const char* complete_mark = "complete";

/// Only files that pack may have written are ever replaced.
void require_only_shards(const fs::path& folder) {
  require(fs::is_directory(folder),
          fmt::format("{}: is a file, but a folder of shards belongs there", folder.string()));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    require(entry.is_regular_file() && entry.path().extension() == ".h5",
            fmt::format("{}: is not a shard, so --force will not replace the folder that holds it; "
                        "choose another --out",
                        entry.path().string()));
}

/// Removes what a killed rank was writing.
void remove_temporaries(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().find(".tmp") != std::string::npos)
      fs::remove(entry.path());
}

}  // namespace

/// The kernel releases the lock when the process ends, however that happens.
struct PackFolder::Lock {
  explicit Lock(const fs::path& partial) {
    const fs::path path = partial / "lock";
    file = Owned<int, ::close, -1>(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file) fail_by_system(path.string(), errno);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return;
    require(errno != EWOULDBLOCK,
            fmt::format("{}: another pack is writing there", partial.string()));
    log::warn(fmt::format("{}: cannot be locked ({}): make sure that no other pack writes there",
                          path.string(), std::strerror(errno)));
  }
  Owned<int, ::close, -1> file;
};

fs::path PackFolder::partial(const fs::path& folder) { return folder / ".partial"; }

PackFolder::PackFolder(fs::path folder, bool force, std::string command)
    : folder_(std::move(folder)), force_(force), command_(std::move(command)) {
  created_ = !fs::exists(folder_);
  make_directories(partial(folder_));
  lock_ = std::make_unique<Lock>(partial(folder_));
  try {
    settle_existing();
  } catch (...) {
    // Keep what another pack left there, unless it is nothing.
    if (finished_shards() == 0 && !fs::exists(partial(folder_) / complete_mark))
      fs::remove_all(partial(folder_));
    throw;
  }
}

void PackFolder::settle_existing() {
  const fs::path work = partial(folder_);
  if (fs::exists(work / complete_mark)) {
    was_complete_ = read_text(work / plan_file).starts_with(command_);
    finish_moves();
    if (was_complete_) return;
    make_directories(work);
    lock_ = std::make_unique<Lock>(work);
  }
  for (const char* split : splits) {
    if (!fs::exists(folder_ / split)) continue;
    require(force_, fmt::format("{}: exists already; choose another --out, or replace the data set "
                                "with --force",
                                (folder_ / split).string()));
    require_only_shards(folder_ / split);
  }
  if (finished_shards() > 0 && !force_) require_same(command_);
  for (const char* name : {"train", "val", "done", "index"}) {
    make_directories(work / name);
    remove_temporaries(work / name);
  }
}

PackFolder::~PackFolder() {
  std::error_code ignored;
  const fs::path work = partial(folder_);
  const bool worth_keeping = finished_shards() > 0;
  lock_.reset();
  if (!fs::exists(work, ignored) || worth_keeping) return;
  fs::remove_all(work, ignored);
  // Removes the folder only if it is empty, so never after a commit.
  if (created_) fs::remove(folder_, ignored);
}

std::size_t PackFolder::finished_shards() const {
  std::error_code missing;
  std::size_t notes = 0;
  for (fs::directory_iterator at(partial(folder_) / "done", missing), end; at != end; ++at)
    notes += at->path().extension() == ".txt";
  return notes;
}

/// Checks that the plan in the folder begins with `now`.
void PackFolder::require_same(const std::string& now) const {
  const fs::path path = partial(folder_) / plan_file;
  std::istringstream before(read_text(path)), lines(now);
  for (std::string was, is; std::getline(lines, is);) {
    std::getline(before, was);
    require(was == is,
            fmt::format(
                "{}: an interrupted pack left {} there, for which it "
                "had \"{}\" where this one has \"{}\": run the same command again to resume, "
                "or start again with --force",
                partial(folder_).string(), counted(finished_shards(), "finished shard"), was, is));
  }
}

bool PackFolder::resume(const std::string& images) {
  const fs::path work = partial(folder_), path = work / plan_file;
  const std::string plan = command_ + images;
  if (finished_shards() > 0 && !force_) require_same(plan);
  if (finished_shards() > 0 && read_text(path) == plan) return true;
  for (const char* name : {"train", "val", "done"}) {
    fs::remove_all(work / name);
    make_directories(work / name);
  }
  write_text_atomically(path, plan);
  return false;
}

void PackFolder::commit() {
  const fs::path skipped = partial(folder_) / skipped_list;
  if (!fs::exists(skipped)) write_text_atomically(skipped, "");  // takes the old one's place
  write_text_atomically(partial(folder_) / complete_mark, "");
  finish_moves();
}

/// Each step may have been done already, by an interrupted commit.
void PackFolder::finish_moves() {
  const fs::path from = partial(folder_);
  for (const char* split : splits) {
    const fs::path target = folder_ / split, old = from / (std::string("old-") + split);
    if (!fs::exists(from / split)) continue;
    if (fs::exists(target)) {
      fs::remove_all(old);
      fs::rename(target, old);
    }
    if (fs::is_empty(from / split))
      fs::remove(from / split);
    else
      rename_durably(from / split, target);
  }
  if (fs::exists(from / skipped_list)) {
    rename_durably(from / skipped_list, folder_ / skipped_list);
    if (fs::is_empty(folder_ / skipped_list)) fs::remove(folder_ / skipped_list);
  }
  lock_.reset();
  fs::remove_all(from);
}

}  // namespace lockstep::pack
