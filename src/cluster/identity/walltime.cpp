#include "lockstep/cluster/identity/walltime.hpp"

#include <algorithm>
#include <ctime>
#include <string>

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

std::optional<double> allocation_left_s(const EnvLookup& env) {
  const std::string job = slurm_job(env);
  if (job.empty()) return std::nullopt;
  if (const auto end = whole_number<long>(env("SLURM_JOB_END_TIME").value_or("")))
    return static_cast<double>(*end - static_cast<long>(std::time(nullptr)));
  return read_time_left(ask_squeue(job, {"TimeLeft"}).front());
}

std::optional<double> mpirun_patience_s(const EnvLookup& env) {
  constexpr long usual = 1;
  if (!env("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  const auto set = whole_number<long>(env("OMPI_MCA_odls_base_sigkill_timeout").value_or(""));
  return static_cast<double>(set.value_or(usual));
}

}  // namespace lockstep::cluster
