#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/identity/identify.hpp"

/// What Slurm's commands know of one job.
namespace lockstep::cluster {

/// This process's job by the name that means it alone. A task of an array has a number in
/// SLURM_JOB_ID, but its last task has the array's number there, which means all tasks to Slurm's
/// commands. So a task is "12_3". Empty outside a job, and where a variable is no number.
std::string slurm_job(const EnvLookup& env);

/// Whether a text is such a name, or a number: nothing else is given to a shell.
bool is_slurm_job(std::string_view job);

/// These columns of a job, by squeue: Slurm's controller knows it for some minutes after its end.
/// Times are seconds since 1970. Each column is empty where there is no squeue, no answer within
/// 10 s, or no such job.
std::vector<std::string> ask_squeue(const std::string& job,
                                    const std::vector<std::string>& columns);
/// The same by sacct, Slurm's accounting: for each time that the job was started, the oldest first.
/// Empty where a cluster has none.
std::vector<std::vector<std::string>> ask_sacct(const std::string& job,
                                                const std::vector<std::string>& columns);

/// Of lines whose first two columns are a job's number and its name: what follows them in those of
/// this job. An array's number may bring lines of all of its tasks. Pure.
std::vector<std::vector<std::string>> lines_of_job(
    const std::vector<std::vector<std::string>>& lines, const std::string& job);

/// The most names in one list: Slurm's own limit for a range.
inline constexpr std::size_t max_hosts = 65536;

/// The names in Slurm's short form, in order: "gpu[01-03,20],login1" is gpu01 gpu02 gpu03 gpu20
/// login1. A number keeps the width that its range begins with. Several bracket groups in one name
/// give every combination, the last group fastest; text may follow the last one. Throws InputError
/// naming the list and its fault: unpaired brackets, a bad range, or more than max_hosts names
/// (checked before any name is made). Pure.
std::vector<std::string> expand_hosts(std::string_view list);

/// The short form of names, in their order, as `scontrol show hostlist` writes it: neighbours that
/// differ only in the number at their end share a bracket. expand_hosts() reverses it. Pure.
std::string compress_hosts(const std::vector<std::string>& names);

/// Sorts by the text before a name's last number, then by that number; numbers that are padded with
/// zeros come after those that are not. Keeps names that occur twice. Pure.
std::vector<std::string> sorted_hosts(std::vector<std::string> names);

}  // namespace lockstep::cluster
