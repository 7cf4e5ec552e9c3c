#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "app/cli/command_words.hpp"
#include "app/commands.hpp"
#include "app/fail.hpp"
#include "app/start/early_end.hpp"
#include "app/start/quiet_end.hpp"
#include "app/status.hpp"
#include "lockstep/base/build_id.hpp"
#include "lockstep/base/descriptors.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/cluster/identify.hpp"
#include "lockstep/comm/absence.hpp"
#include "lockstep/comm/tcp_control.hpp"

namespace lockstep::app {
namespace {

constexpr const char* program_version = "lockstep 0.1";
constexpr const char* help_footer =
    "Exit status: 0 done; 1 an error; 2 bad input or usage; 3 stopped by Ctrl-C, SIGTERM,\n"
    "SIGUSR1 or --stop-after, with a checkpoint for --resume auto; 4 another rank was lost, or\n"
    "the network or a file system does not answer.\n"
    "lockstep help COMMAND lists a command's options.";

int run(Launch& launch, const Command& command) {
  try {
    const int status = command.run(launch);
    if (status != status_done) end_ranks(launch, status);
    release_ranks(launch, status);
    return status;
  } catch (const cluster::LaunchError& error) {
    const bool said_by_rank_0 = likely_rank(launch) > 0;
    return fail(launch, said_by_rank_0 ? "the launch cannot work: rank 0 says why" : error.what(),
                status_bad_input);
  } catch (const InputError& error) {
    return fail(launch, error.what(), status_bad_input);
  } catch (const comm::MissingRanks& missing) {
    if (!missing.told) return fail(launch, missing.what(), status_lost_rank);
    wait_for_turn(launch, status_lost_rank);  // rank 0 says which
    return status_lost_rank;
  } catch (const comm::OutsideFault& error) {
    return fail(launch, error.what(), status_lost_rank);
  } catch (const std::exception& error) {
    return fail(launch, error.what(), status_failed);
  }
}

/// NO_COLOR, where it is set and not empty, means no colours: https://no-color.org
void use_terminal() {
  const cluster::EnvLookup env = cluster::process_environment();
  const bool redraws = env("TERM").value_or("") != "dumb";
  log::set_terminal(redraws, redraws && env("NO_COLOR").value_or("").empty());
}

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that exits (`| head`) must not end a training
  prepare_descriptors();
  use_terminal();
  CLI::App root("Trains ResNets with synchronous SGD on many ranks.", "lockstep");
  root.set_version_flag("--version", fmt::format("{} (build {})", program_version, build_id()));
  root.footer(help_footer);
  std::vector<Command> commands;
  for (const auto add : {add_train, add_resume, add_eval, add_pack, add_topo, add_info, add_bench,
                         add_preflight, add_whoami, add_lint, add_scaling, add_simulate})
    commands.push_back(add(Arguments(root)));
  Launch launch;
  launch.argc = argc;
  launch.argv = argv;
  std::vector<std::string> words;
  try {
    words = command_words(root, argc, argv);
    root.parse(for_parser(words));
  } catch (const CLI::ExtrasError&) {
    return fail(launch, describe_unexpected(root, words).c_str(), status_bad_input);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      return end_all(launch, status_bad_input, error.what(), [&] { root.exit(error); });
    wait_for_turn(launch, status_done);
    root.exit(error);  // prints what was asked for
    return status_done;
  } catch (const InputError& error) {
    return fail(launch, error.what(), status_bad_input);
  }
  for (const Command& command : commands)
    if (command.app.given()) return run(launch, command);
  wait_for_turn(launch, status_bad_input);
  log::info(root.help());
  return status_bad_input;
}

}  // namespace
}  // namespace lockstep::app

int main(int argc, char** argv) { return lockstep::app::main(argc, argv); }
