#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/train/checkpoint.hpp"

namespace lockstep::train {
namespace {

constexpr std::string_view kPrefix = "step-", kSuffix = ".h5";

/// The step of "step-00000390.h5"; nothing for other names, such as a temporary file's.
std::optional<std::uint64_t> step_of(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size() - kSuffix.size();
  std::uint64_t step = 0;
  const auto result = std::from_chars(begin, end, step);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return step;
}

void set_aside(const std::filesystem::path& path) {
  std::filesystem::path aside = path;
  aside += ".aside";
  std::error_code error;
  std::filesystem::rename(path, aside, error);
  require(!error, fmt::format("{}: cannot be set aside: {}", path.string(), error.message()));
  log::warn(
      fmt::format("{} lies behind the step that the run goes on from, or is torn; it is now {}",
                  path.string(), aside.filename().string()));
}

/// Also true of a file that is not whole.
bool written_after(const std::filesystem::path& path, std::uint64_t step) {
  try {
    return read_header(path).progress.step > step;
  } catch (const InputError&) {
    return true;
  }
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(std::filesystem::path directory, std::size_t keep)
    : directory_(std::move(directory)), keep_(keep) {}

std::filesystem::path CheckpointDirectory::path_of(std::uint64_t step) const {
  return directory_ / fmt::format("{}{:08}{}", kPrefix, step, kSuffix);
}

std::filesystem::path CheckpointDirectory::best() const { return directory_ / "best.h5"; }

std::vector<std::filesystem::path> CheckpointDirectory::newest_first() const {
  std::vector<std::pair<std::uint64_t, std::filesystem::path>> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, none))
    if (const auto step = step_of(entry.path())) found.emplace_back(*step, entry.path());
  std::sort(found.rbegin(), found.rend());
  std::vector<std::filesystem::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::optional<std::filesystem::path> CheckpointDirectory::newest_valid() const {
  for (const auto& path : newest_first()) {
    try {
      verify_checkpoint(path);
      return path;
    } catch (const InputError& error) {
      log::warn(fmt::format("{}; looking for an earlier one", error.what()));
    }
  }
  return std::nullopt;
}

void CheckpointDirectory::set_aside_after(std::uint64_t step) const {
  for (const auto& path : newest_first()) {
    if (*step_of(path) <= step) break;
    set_aside(path);
  }
  if (std::filesystem::exists(best()) && written_after(best(), step)) set_aside(best());
}

void CheckpointDirectory::prune() const {
  const auto paths = newest_first();
  std::error_code ignored;  // what cannot be removed now is tried again after the next checkpoint
  for (std::size_t i = keep_; i < paths.size(); ++i) std::filesystem::remove(paths[i], ignored);
  // A rank that was killed while it wrote has left its temporary file.
  for (const auto& entry : std::filesystem::directory_iterator(directory_, ignored))
    if (entry.path().filename().string().find(".h5.tmp") != std::string::npos)
      std::filesystem::remove(entry.path(), ignored);
}

}  // namespace lockstep::train
