#include "train/files/generation.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/numbers.hpp"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const RunDirectory& run) { return run.root() / "generations"; }

fs::path file_of(const RunDirectory& run, std::uint64_t number) {
  return folder_of(run) / fmt::format("{:06}", number);
}

/// The numbers that are taken, ascending.
std::vector<std::uint64_t> numbers(const RunDirectory& run) {
  std::vector<std::uint64_t> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder_of(run), none)) {
    if (const auto number = whole_number<std::uint64_t>(entry.path().filename().string()))
      found.push_back(*number);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string to_text(const StartNotice& start) {
  return fmt::format("{}host {}\njob {}\n", start.step ? fmt::format("step {}\n", *start.step) : "",
                     start.host, start.job.empty() ? "-" : start.job);
}

/// Reads what there is: a file that is just being written may still be empty.
StartNotice read_start(const RunDirectory& run, std::uint64_t number) {
  StartNotice start{number, std::nullopt, "", ""};
  std::istringstream words;
  try {
    words.str(read_text(file_of(run, number)));
  } catch (const InputError&) {
    return start;
  }
  for (std::string key, value; words >> key >> value;) {
    if (key == "step") start.step = whole_number<std::uint64_t>(value).value_or(0);
    if (key == "host") start.host = value;
    if (key == "job" && value != "-") start.job = value;
  }
  return start;
}

}  // namespace

std::optional<StartNotice> newest_start(const RunDirectory& run) {
  const auto found = numbers(run);
  if (found.empty()) return std::nullopt;
  return read_start(run, found.back());
}

std::size_t starts_without_progress(const RunDirectory& run, const std::string& job,
                                    std::uint64_t step) {
  const auto found = numbers(run);
  std::size_t count = 0;
  for (auto number = found.rbegin(); number != found.rend(); ++number) {
    const StartNotice start = read_start(run, *number);
    if (start.job != job || start.step.value_or(step) != step) break;
    if (start.step) ++count;
  }
  return count;
}

Generation::Generation(const RunDirectory& run, const StartNotice& start) : run_(run) {
  make_directories(folder_of(run_));
  const auto taken = numbers(run_);
  for (number_ = taken.empty() ? 1 : taken.back() + 1;; ++number_) {
    const fs::path path = file_of(run_, number_);
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file && errno == EEXIST) continue;
    const std::string text = to_text(start);
    const bool written = file && write_all(file.get(), text.data(), text.size()) == text.size() &&
                         ::fsync(file.get()) == 0;
    if (!written) fail_by_system("cannot write " + path.string(), errno);
    return;
  }
}

void Generation::require_newest() const {
  const fs::path next = file_of(run_, number_ + 1);
  std::error_code none;
  if (!fs::exists(next, none)) return;
  const StartNotice newest = newest_start(run_).value_or(StartNotice{});
  throw Error(fmt::format("{} was started again on {}{} while this start, generation {}, was still "
                          "running: it ends and writes nothing more",
                          run_.root().string(), newest.host.empty() ? "another node" : newest.host,
                          newest.job.empty() ? "" : fmt::format(" by job {}", newest.job), number_),
              Ending::superseded);
}

bool take_over_from_previous_start(const RunDirectory& run, const StartNotice& now,
                                   double patience_s) {
  const auto previous = newest_start(run);
  if (!previous || now.job.empty() || previous->job != now.job || !RunLock::look(run).held_since_ms)
    return false;
  log::warn(
      fmt::format("{}: an earlier start of job {}, on {}, is still running here and is told to end",
                  run.root().string(), now.job, previous->host));
  StartNotice notice = now;
  notice.step.reset();
  const Generation newer(run, notice);
  for (const double until_s = now_s() + patience_s;
       RunLock::look(run).held_since_ms && now_s() < until_s;)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return true;
}

}  // namespace lockstep::train
