#include "lockstep/observe/tensorboard/tensorboard_log.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"
#include "observe/tensorboard/events.hpp"

namespace lockstep::observe {
namespace {

constexpr std::size_t most_at_once_bytes = 64 * 1024;
constexpr std::string_view name_begins = "events.out.tfevents.";

/// Those of earlier starts.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(name_begins)) files.push_back(entry.path());
  return files;
}

/// That a file's name has; 0 where it has none.
std::uint64_t time_in_name(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  std::uint64_t time_s = 0;
  std::from_chars(name.data() + name_begins.size(), name.data() + name.size(), time_s);
  return time_s;
}

}  // namespace

TensorBoardLog::TensorBoardLog(Spec spec)
    : spec_(std::move(spec)),
      file_({.target = {spec_.folder},
             .prepare =
                 [this](AppendingFile::Target& target, const std::string& events) {
                   if (!target.file) begin(target);
                   if (!events.empty()) require_writer();
                 },
             .failed =
                 [](std::string_view why) {
                   if (!why.empty())
                     log::warn(fmt::format(
                         "TensorBoard's curves end here, and training continues: {}", why));
                 }}) {
  file_.request_flush();
}

/// Throws without a word when a newer start has begun, which the run itself finds and says.
void TensorBoardLog::require_writer() const {
  try {
    if (spec_.require_writer) spec_.require_writer();
  } catch (const Error&) {
    throw Error("");
  }
}

/// Makes the file, after those of earlier starts in the order of names, which readers follow.
void TensorBoardLog::begin(AppendingFile::Target& target) const {
  make_directories(spec_.folder);
  const std::vector<std::filesystem::path> earlier = event_files(spec_.folder);
  std::uint64_t name_s = spec_.start.time_ms / 1000;
  for (const std::filesystem::path& one : earlier) name_s = std::max(name_s, time_in_name(one) + 1);
  const std::string host = spec_.start.hosts.empty() ? "host" : spec_.start.hosts.front();
  target.path =
      spec_.folder / fmt::format("{}{:010}.{}.{}.0", name_begins, name_s, host, ::getpid());
  require_writer();
  for (const std::filesystem::path& one : earlier) cut(one);
  target.file = open_regular(target.path, O_WRONLY | O_CREAT | O_EXCL);
  if (!target.file) fail_by_system(target.path.string() + " cannot be made", errno);
  const double time_s = static_cast<double>(spec_.start.time_ms) / 1e3;
  std::string events = framed(version_event(time_s));
  events += framed(restart_event(time_s, spec_.start.from_step));
  events += framed(session_start_event(time_s, spec_.config, spec_.start));
  target.write(events);
  repeat_earlier(target, earlier.empty() ? 0 : spec_.start.from_step);
}

/// What this start says again is cut away, for readers that take each file alone.
void TensorBoardLog::cut(const std::filesystem::path& earlier) const {
  const std::string events = read_text(earlier);
  const std::size_t keep = bytes_before(events, spec_.start.from_step);
  if (keep < events.size() && ::truncate(earlier.c_str(), static_cast<off_t>(keep)) != 0)
    fail_by_system(earlier.string() + " cannot be cut", errno);
}

/// What metrics.jsonl says of the steps from this one on, up to the line of this start.
void TensorBoardLog::repeat_earlier(AppendingFile::Target& target, std::uint64_t from_step) const {
  if (spec_.start.from_step == 0) return;
  std::string events;
  read_records(spec_.metrics, [&](const Record& record) {
    if (const auto* start = std::get_if<StartRecord>(&record))
      return start->time_ms != spec_.start.time_ms;
    if (step_of_curves(record).value_or(0) < std::max<std::uint64_t>(from_step, 1)) return true;
    events += framed(*curves_event(record));
    if (events.size() >= most_at_once_bytes) target.write(std::exchange(events, {}));
    return true;
  });
  target.write(events);
}

void TensorBoardLog::write(const Record& record) {
  if (const auto curves = curves_event(record)) file_.add(framed(*curves));
  const auto* end = std::get_if<EndRecord>(&record);
  // Readers keep the first end that they see, and what was stopped or failed can be resumed.
  if (end != nullptr && (end->status == "finished" || end->status == "diverged"))
    file_.add(framed(
        session_end_event(static_cast<double>(end->time_ms) / 1e3, end->status == "finished")));
}

}  // namespace lockstep::observe
