#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/model/checkpoint.hpp"

namespace lockstep::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view newest_prefix = "step-", best_prefix = "best-",
                           checkpoint_suffix = ".h5";

/// A file and the step in its name.
struct Numbered {
  std::uint64_t step = 0;
  fs::path path;
};

/// The step of "step-00000390.h5"; empty for other names, such as a temporary file's.
std::optional<std::uint64_t> step_of(const fs::path& path, std::string_view prefix) {
  const std::string name = path.filename().string();
  if (!name.starts_with(prefix) || !name.ends_with(checkpoint_suffix)) return std::nullopt;
  return whole_number<std::uint64_t>(
      name.substr(prefix.size(), name.size() - prefix.size() - checkpoint_suffix.size()));
}

/// The files named "<prefix>STEP.h5", newest first.
std::vector<Numbered> list(const fs::path& directory, std::string_view prefix) {
  std::vector<Numbered> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory, none))
    if (const auto step = step_of(entry.path(), prefix)) found.push_back({*step, entry.path()});
  std::sort(found.begin(), found.end(),
            [](const Numbered& a, const Numbered& b) { return a.step > b.step; });
  return found;
}

/// What the file holds. Throws InputError when it is torn, or not of the step in its name: then it
/// was renamed or copied, and no step of this run.
Progress progress_in(const Numbered& file) {
  Progress its = read_header(file.path).progress;
  require(its.step == file.step,
          fmt::format("{}: by its name it is of step {}, but it holds step {}", file.path.string(),
                      file.step, its.step));
  return its;
}

void set_aside(const fs::path& path) {
  fs::path aside = path;
  aside += ".aside";
  aside = rename_to_free(path, aside);
  log::warn(fmt::format(
      "{} is later than the step that the run resumes from, torn, or of another step than its "
      "name says; it is now {}",
      path.string(), aside.filename().string()));
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(fs::path directory, std::size_t keep)
    : directory_(std::move(directory)), keep_(keep) {}

fs::path CheckpointDirectory::path_of(std::uint64_t step) const {
  return directory_ / fmt::format("{}{:08}{}", newest_prefix, step, checkpoint_suffix);
}

fs::path CheckpointDirectory::best_of(std::uint64_t step) const {
  return directory_ / fmt::format("{}{:08}{}", best_prefix, step, checkpoint_suffix);
}

fs::path CheckpointDirectory::best() const { return directory_ / "best.h5"; }

std::vector<fs::path> CheckpointDirectory::newest_first() const {
  std::vector<fs::path> paths;
  for (Numbered& one : list(directory_, newest_prefix)) paths.push_back(std::move(one.path));
  return paths;
}

std::optional<fs::path> CheckpointDirectory::newest_valid(std::uint64_t before) const {
  for (const Numbered& one : list(directory_, newest_prefix)) {
    if (one.step >= before) continue;
    try {
      progress_in(one);
      return one.path;
    } catch (const InputError& error) {
      log::warn(fmt::format("{}; looking for an earlier one", error.what()));
    }
  }
  return std::nullopt;
}

void CheckpointDirectory::name_best(std::uint64_t step) const {
  give_second_name(best_of(step), best());
}

std::optional<fs::path> CheckpointDirectory::best_counted_by(const Progress& at) const {
  for (const Numbered& one : list(directory_, best_prefix)) {
    if (one.step > at.step) continue;
    try {
      const Progress its = progress_in(one);
      if (its.best_epoch == at.best_epoch && its.best_score == at.best_score) return one.path;
    } catch (const InputError& error) {
      log::warn(error.what());
    }
  }
  return std::nullopt;
}

void CheckpointDirectory::go_on_from(const Progress& at, const CheckpointDirectory& origin) const {
  for (const std::string_view prefix : {newest_prefix, best_prefix})
    for (const Numbered& one : list(directory_, prefix))
      if (one.step > at.step) set_aside(one.path);
  const auto found = origin.best_counted_by(at);
  if (!found) {
    if (fs::exists(best())) set_aside(best());
    return;
  }
  const std::uint64_t step = *step_of(*found, best_prefix);
  if (!fs::exists(best_of(step))) copy_atomically(*found, best_of(step));
  name_best(step);
}

void CheckpointDirectory::prune() const {
  std::vector<Numbered> newest = list(directory_, newest_prefix),
                        best = list(directory_, best_prefix);
  std::error_code ignored;  // the next checkpoint tries again
  for (; newest.size() > keep_; newest.pop_back()) fs::remove(newest.back().path, ignored);
  for (std::size_t i = 1; i < best.size(); ++i) {
    // A checkpoint of the next best's own step may have been written before that validation.
    const auto counts_it = [&](const Numbered& checkpoint) {
      return best[i].step <= checkpoint.step && checkpoint.step <= best[i - 1].step;
    };
    if (std::none_of(newest.begin(), newest.end(), counts_it)) fs::remove(best[i].path, ignored);
  }
  remove_temporaries(directory_, ".h5");
}

}  // namespace lockstep::model
