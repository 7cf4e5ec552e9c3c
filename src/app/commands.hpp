#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/command_line.hpp"
#include "app/start/launch.hpp"

namespace lockstep::app {

/// The program's exit status: the one rule, which jobs/README.md repeats with what to do, and which
/// the scripts in jobs/ follow. The same command again helps after 3 and 4 only.
enum Status : int {
  status_done = 0,
  /// Error: training diverged, a run of a study failed, a disk is full, no memory, a fault inside.
  status_failed = 1,
  /// InputError: for the user to correct: a file, a key, the launch, too few measurements.
  status_bad_input = 2,
  status_stopped = 3,   ///< stopped by a signal, stop-after or the time limit, with a checkpoint
  status_lost_rank = 4  ///< another rank is missing, or the network or file system does not answer
};
constexpr const char* status_help =
    "Exit status: 0 done; 1 the run failed (it diverged, a disk is full, no memory); 2 bad input "
    "or\n"
    "usage; 3 stopped by Ctrl-C, SIGHUP, SIGTERM, SIGUSR1, the time limit or --stop-after, with a\n"
    "checkpoint for --resume auto; 4 another rank was lost, or the network or a file system does\n"
    "not answer.\n";

/// What lint knows of the start that it judges.
struct Supposed {
  int ranks = 1;
  /// Whether the job finds at this path what is there now. Others are not looked at.
  std::function<bool(const std::string& path)> shows;
  /// False: there may be options that lint does not see, so each of the others is judged alone.
  bool whole = true;
};

/// A subcommand: `app` has its options; `run` executes it and returns the exit status. It throws
/// errors; main prints them and ends the world. `check` throws what run() would, where that needs
/// no device and no other rank; it starts, writes and prints nothing. None: all is in the options.
struct Command {
  Arguments app;
  std::function<int(Launch&)> run;
  std::function<void(const Supposed&)> check = {};
};

/// Runs the one of these that the line names; nullopt where it names none.
inline std::optional<int> run_given(const std::vector<Command>& commands, Launch& launch) {
  for (const Command& one : commands)
    if (one.app.given()) return one.run(launch);
  return std::nullopt;
}

/// The check of the one of these that the line names.
inline void check_given(const std::vector<Command>& commands, const Supposed& supposed) {
  for (const Command& one : commands)
    if (one.app.given() && one.check) one.check(supposed);
}

Command add_train(Arguments root);
Command add_resume(Arguments root);
Command add_eval(Arguments root);
Command add_predict(Arguments root);
Command add_serve(Arguments root);
Command add_pack(Arguments root);
Command add_topo(Arguments root);
Command add_export(Arguments root);
Command add_average(Arguments root);
Command add_info(Arguments root);
Command add_why(Arguments root);
Command add_report(Arguments root);
Command add_doctor(Arguments root);
Command add_bench(Arguments root);
Command add_whoami(Arguments root);
Command add_preflight(Arguments root);
Command add_lint(Arguments root);
Command add_scaling(Arguments root);
Command add_search(Arguments root);
Command add_simulate(Arguments root);
Command add_plan(Arguments root);

/// What a command is for: what it prints, without which it has failed, or files. A training
/// continues without its log.
enum class Product { files, text };

struct OwnCommand {
  Command (*add)(Arguments);
  Product product;
};
inline constexpr OwnCommand all_commands[] = {
    {add_train, Product::files},   {add_resume, Product::files},  {add_eval, Product::text},
    {add_predict, Product::files}, {add_serve, Product::files},   {add_export, Product::files},
    {add_average, Product::files}, {add_pack, Product::files},    {add_topo, Product::text},
    {add_info, Product::text},     {add_why, Product::text},      {add_report, Product::text},
    {add_doctor, Product::text},   {add_bench, Product::text},    {add_preflight, Product::text},
    {add_whoami, Product::text},   {add_lint, Product::text},     {add_scaling, Product::text},
    {add_search, Product::text},   {add_simulate, Product::text}, {add_plan, Product::text}};

// Under `lockstep bench`.
Command add_bench_binding(Arguments bench);
Command add_bench_comm(Arguments bench);
Command add_bench_data(Arguments bench);
Command add_bench_inference(Arguments bench);

// Under `lockstep scaling`: making the measurements, and what they say.
Command add_scaling_plan(Arguments scaling);
Command add_scaling_run(Arguments scaling);
Command add_scaling_fit(Arguments scaling);
Command add_scaling_predict(Arguments scaling);
Command add_scaling_report(Arguments scaling);
/// Writes report.html, report.md, report.tex and the pictures into the folder of a study whose
/// steps are all done. Returns the exit status.
int report_study(const std::string& folder);

}  // namespace lockstep::app
