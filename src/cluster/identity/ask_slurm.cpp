#include "lockstep/cluster/identity/ask_slurm.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/core.h>

#include "lockstep/base/process.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

using Columns = std::vector<std::string>;

constexpr std::size_t column_width = 40;  // of squeue's columns, which have no mark between them

std::vector<std::string> answer_within_10_s(const std::string& command) {
  return answer_of(fmt::format("SLURM_TIME_FORMAT=%s timeout 10 {} 2>/dev/null", command));
}

Columns of_fixed_width(const std::string& line) {
  Columns columns;
  for (std::size_t at = 0; at < line.size(); at += column_width)
    columns.emplace_back(trimmed(line.substr(at, column_width)));
  return columns;
}

Columns between_bars(const std::string& line) {
  Columns columns;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find('|', at), line.size());
    columns.emplace_back(trimmed(line.substr(at, end - at)));
    at = end + 1;
  }
  return columns;
}

}  // namespace

bool is_slurm_job(std::string_view job) {
  const std::size_t bar = std::min(job.find('_'), job.size());
  return whole_number<std::uint64_t>(job.substr(0, bar)) &&
         (bar == job.size() || whole_number<std::uint64_t>(job.substr(bar + 1)));
}

std::string slurm_job(const EnvLookup& env) {
  std::string job = env("SLURM_JOB_ID").value_or("");
  const auto array = env("SLURM_ARRAY_JOB_ID"), task = env("SLURM_ARRAY_TASK_ID");
  if (!job.empty() && array && task) job = *array + "_" + *task;
  return is_slurm_job(job) ? job : "";
}

std::vector<Columns> lines_of_job(const std::vector<Columns>& lines, const std::string& job) {
  std::vector<Columns> found;
  for (const Columns& line : lines)
    if (line.size() > 1 && (line[0] == job || line[1] == job))
      found.emplace_back(line.begin() + 2, line.end());
  return found;
}

Columns ask_squeue(const std::string& job, const Columns& columns) {
  std::vector<Columns> lines;
  std::string wanted;
  for (const std::string& column : columns) wanted += fmt::format(",{}:{}", column, column_width);
  if (is_slurm_job(job))
    for (const std::string& line :
         answer_within_10_s(fmt::format("squeue -h -t all -j {} -O JobID:{},JobArrayID:{}{}", job,
                                        column_width, column_width, wanted)))
      lines.push_back(of_fixed_width(line));
  lines = lines_of_job(lines, job);
  Columns found = lines.empty() ? Columns() : lines.back();
  found.resize(columns.size());
  return found;
}

std::vector<Columns> ask_sacct(const std::string& job, const Columns& columns) {
  std::vector<Columns> lines;
  if (is_slurm_job(job))
    for (const std::string& line : answer_within_10_s(
             fmt::format("sacct -n -P -X -D -j {} -o JobIDRaw,JobID,{}", job, join(columns, ","))))
      lines.push_back(between_bars(line));
  lines = lines_of_job(lines, job);
  for (Columns& line : lines) line.resize(columns.size());
  return lines;
}

}  // namespace lockstep::cluster
