#include "pack/pack_folder.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <future>
#include <sstream>
#include <thread>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/agreement.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

constexpr const char* splits[] = {"train", "val"};
constexpr const char* skipped_list = "skipped.txt";
constexpr const char* plan_file = "plan.txt";
constexpr const char* complete_mark = "complete";
constexpr std::size_t whole = 0;  // the only piece of its work: ranks share the shards

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

}  // namespace

void require_room(const fs::path& out, bool force) {
  if (fs::exists(PackFolder::partial(out) / complete_mark)) return;
  for (const char* split : splits) {
    if (!fs::exists(out / split)) continue;
    require(force, fmt::format("{}: exists already; choose another --out, or replace the data set "
                               "with --force",
                               (out / split).string()));
    require_only_shards(out / split);
  }
}

fs::path PackFolder::partial(const fs::path& folder) { return folder / ".partial"; }

PackFolder::PackFolder(fs::path folder, bool force, std::string command)
    : folder_(std::move(folder)), force_(force), command_(std::move(command)) {
  require_room(folder_, force_);  // before a trace is left
  created_ = !fs::exists(folder_);
  take();
  try {
    settle_existing();
  } catch (...) {
    // Keep what another pack left there, unless it is nothing.
    if (finished_shards() == 0 && !fs::exists(partial(folder_) / complete_mark))
      fs::remove_all(partial(folder_));
    throw;
  }
}

void PackFolder::take() {
  const fs::path work = partial(folder_);
  make_directories(work);
  claim_ = std::make_unique<WorkFolder>(WorkFolderSpec{.claims = work / "claims"});
  require(claim_->hold(whole), fmt::format("{}: another pack is writing there", work.string()));
}

void PackFolder::require_own() const {
  if (claim_->is_overtaken(whole))
    throw Error(fmt::format("{}: another pack has taken this over, because this one showed no life",
                            partial(folder_).string()));
}

void PackFolder::settle_existing() {
  const fs::path work = partial(folder_);
  if (fs::exists(work / complete_mark)) {
    was_complete_ = read_text(work / plan_file).starts_with(command_);
    finish_moves();
    if (was_complete_) return;
    take();
  }
  require_room(folder_, force_);
  if (finished_shards() > 0 && !force_) require_same(command_);
  for (const char* name : {"train", "val", "done", "index"}) {
    make_directories(work / name);
    remove_temporaries(work / name, "");
  }
}

PackFolder::~PackFolder() {
  std::error_code ignored;
  const fs::path work = partial(folder_);
  const bool worth_keeping = finished_shards() > 0 || (claim_ && claim_->is_overtaken(whole));
  claim_.reset();
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
  require_own();
  const fs::path skipped = partial(folder_) / skipped_list;
  if (!fs::exists(skipped)) write_text_atomically(skipped, "");  // takes the old one's place
  write_text_atomically(partial(folder_) / complete_mark, "");
  finish_moves();
}

namespace {

/// What says that a commit has begun is removed last: an interrupted one is then finished, and not
/// taken for something else.
void remove_finished(const fs::path& work) {
  for (const fs::directory_entry& entry : fs::directory_iterator(work))
    if (entry.path().filename() != plan_file && entry.path().filename() != complete_mark)
      fs::remove_all(entry.path());
  fs::remove(work / complete_mark);
  fs::remove_all(work);
}

}  // namespace

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
  claim_.reset();
  remove_finished(from);
}

using comm::together;

void share_index(comm::Control& control, const SourceSpec& source,
                 const std::filesystem::path& folder) {
  std::size_t pieces = 0;
  together(control, "pack: index", [&] { pieces = index_count(source); });
  if (pieces == 0) return;
  const auto rank = static_cast<std::size_t>(control.rank());
  const auto world = static_cast<std::size_t>(control.world());
  std::atomic<std::size_t> finished = 0;
  std::atomic<bool> given_up = false;
  // A piece may take long, so a thread does it while the ranks stay in touch.
  std::future<void> own = std::async(std::launch::async, [&] {
    for (std::size_t piece = rank; piece < pieces && !given_up; piece += world) {
      index_piece(source, piece, folder);
      ++finished;
    }
  });
  // Stops the thread before its future waits for it, also when another rank has failed.
  const struct Stop {
    std::atomic<bool>& flag;
    ~Stop() { flag = true; }
  } stop{given_up};
  const std::chrono::duration<double> round(round_s);
  for (bool all = false; !all;) {
    if (!own.valid()) std::this_thread::sleep_for(round);
    const bool ready = own.valid() && own.wait_for(round) == std::future_status::ready;
    together(control, "pack: index", [&] {
      if (ready) own.get();
    });
    const std::vector<double> state =
        control.sum({static_cast<double>(finished), own.valid() ? 0.0 : 1.0}, "pack: index");
    all = state[1] == control.world();
    if (!all)
      log::progress(fmt::format("looking for images: {:.0f} of {} {} done", state[0], pieces,
                                source.kind == "tar" ? "tars" : "sources"));
  }
  log::end_progress();
}

}  // namespace lockstep::pack
