#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include "launch.hpp"

namespace lockstep::app {

/// A subcommand: its options stand in `app`; `run` does it and returns the exit status. Errors are
/// thrown; main prints them and ends the world.
struct Command {
  CLI::App* app = nullptr;
  std::function<int(Launch&)> run;
};

Command add_train(CLI::App& root);
Command add_eval(CLI::App& root);
Command add_pack(CLI::App& root);
Command add_topo(CLI::App& root);
Command add_info(CLI::App& root);
Command add_bench(CLI::App& root);
Command add_whoami(CLI::App& root);
Command add_preflight(CLI::App& root);
Command add_lint(CLI::App& root);
Command add_scaling(CLI::App& root);

}  // namespace lockstep::app
