#pragma once

#include <functional>

#include "app/cli/arguments.hpp"
#include "app/start/launch.hpp"

namespace lockstep::app {

/// A subcommand: `app` has its options; `run` executes it and returns the exit status. It throws
/// errors; main prints them and ends the world.
struct Command {
  Arguments app;
  std::function<int(Launch&)> run;
};

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
Command add_simulate(Arguments root);

}  // namespace lockstep::app
