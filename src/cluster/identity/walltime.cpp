#include "lockstep/cluster/identity/walltime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>

#include "lockstep/base/log.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"

namespace lockstep::cluster {

std::optional<double> read_time_left(std::string_view text) {
  double days = 0, seconds = 0;
  if (const auto dash = text.find('-'); dash != text.npos) {
    const auto count = whole_number<long>(text.substr(0, dash));
    if (!count) return std::nullopt;
    days = static_cast<double>(*count);
    text.remove_prefix(dash + 1);
  }
  int parts = 0;
  for (; parts < 3; ++parts) {
    const auto colon = std::min(text.find(':'), text.size());
    const auto value = whole_number<long>(text.substr(0, colon));
    if (!value) return std::nullopt;
    seconds = seconds * 60 + static_cast<double>(*value);
    text.remove_prefix(colon);
    if (text.empty()) break;
    text.remove_prefix(1);
  }
  if (!text.empty() || parts == 0) return std::nullopt;
  return days * 86400 + seconds;
}

std::optional<double> read_time_limit(std::string_view text) {
  if (text == "UNLIMITED" || text == "INFINITE" || text == "infinite" || text == "unlimited")
    return 0;
  const auto colons = std::count(text.begin(), text.end(), ':');
  const std::size_t dash = text.find('-');
  if (dash == text.npos && colons == 0) {
    const auto minutes = whole_number<long>(text);
    return minutes ? std::optional(static_cast<double>(*minutes) * 60) : std::nullopt;
  }
  if (dash == text.npos) return read_time_left(text);
  // After days come hours, which may be followed by minutes and seconds.
  std::string full(text);
  for (auto missing = colons; missing < 2; ++missing) full += ":00";
  return read_time_left(full);
}

namespace {

/// What Slurm's variables say by this node's clock.
struct LeftByClock {
  double left_s = 0;
  std::optional<double> length_s =
      std::nullopt;  ///< of the allocation, where they say when it began
  /// The clock of this node and Slurm's cannot both be right.
  bool is_wrong() const { return left_s <= 0 || (length_s && left_s > *length_s); }
};

std::optional<LeftByClock> left_by_clock(const EnvLookup& env) {
  const auto end = whole_number<long>(env("SLURM_JOB_END_TIME").value_or(""));
  if (!end) return std::nullopt;
  LeftByClock by_clock{.left_s = static_cast<double>(*end - static_cast<long>(std::time(nullptr)))};
  if (const auto start = whole_number<long>(env("SLURM_JOB_START_TIME").value_or("")))
    by_clock.length_s = static_cast<double>(*end - *start);
  return by_clock;
}

/// Where Slurm does not answer, either: no end that has passed, and none later than can be.
std::optional<double> within_length(const LeftByClock& by_clock) {
  log::warn(fmt::format(
      "by this node's clock the job, which runs, {}: does the clock differ from Slurm's? The time "
      "limit is not known for certain",
      by_clock.left_s <= 0 ? fmt::format("ended {:.0f} s ago", -by_clock.left_s)
                           : "has not begun yet"));
  return by_clock.left_s <= 0 ? std::nullopt : by_clock.length_s;
}

}  // namespace

std::optional<double> allocation_left_s(const EnvLookup& env) {
  const std::string job = slurm_job(env);
  if (job.empty()) return std::nullopt;
  const auto by_clock = left_by_clock(env);
  if (by_clock && !by_clock->is_wrong()) return by_clock->left_s;
  if (const auto left_s = read_time_left(ask_squeue(job, {"TimeLeft"}).front())) return left_s;
  return by_clock ? within_length(*by_clock) : std::nullopt;
}

std::optional<double> mpirun_patience_s(const EnvLookup& env) {
  constexpr long usual = 1;
  if (!env("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  const auto set = whole_number<long>(env("OMPI_MCA_odls_base_sigkill_timeout").value_or(""));
  return static_cast<double>(set.value_or(usual));
}

namespace {

/// Open MPI's rule: 0 and these words are false.
bool is_true(std::string value) {
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<std::string_view, 7> no{"", "0", "f", "n", "false", "no", "disabled"};
  return std::find(no.begin(), no.end(), value) == no.end();
}

}  // namespace

std::string describe_endless_yields(const EnvLookup& env) {
  constexpr std::string_view asked = "OMPI_MCA_mpi_yield_when_idle";
  constexpr std::string_view implied = "OMPI_MCA_mpi_oversubscribe";
  const std::string_view name = env(asked) ? asked : implied;
  const std::optional<std::string> value = env(name);
  if (!value || !is_true(*value)) return "";
  return fmt::format(
      "{}={} makes Open MPI's ranks yield the core without end while they wait{}; on some kernels "
      "(Linux 6.18) all else on the node then stops for many seconds. lockstep switches that off "
      "for its ranks, which nap while they wait",
      name, *value,
      name == implied ? " (mpirun sets it where it starts more ranks than cores)" : "");
}

}  // namespace lockstep::cluster
