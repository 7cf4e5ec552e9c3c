#include <csignal>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "app/commands.hpp"
#include "app/fail.hpp"
#include "app/status.hpp"
#include "lockstep/base/build_id.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/comm/tcp_control.hpp"

namespace lockstep::app {
namespace {

constexpr const char* program_version = "lockstep 0.1";
constexpr const char* help_footer =
    "Exit status: 0 done; 1 an error; 2 bad input or usage; 3 stopped by SIGTERM, SIGUSR1 or\n"
    "--stop-after, with a checkpoint for --resume auto; 4 another rank was lost.\n"
    "lockstep COMMAND --help lists a command's options.";

int run(Launch& launch, const Command& command) {
  try {
    return command.run(launch);
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
  } catch (const std::exception& error) {
    return fail(launch, error.what(), status_failed);
  }
}

/// The arguments in reverse, as CLI11 takes them. "--key=" becomes "--key" and an empty text: CLI11
/// would take the argument after it for the value.
std::vector<std::string> reversed_arguments(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {
    const std::string_view argument = argv[i];
    const bool empty = argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    if (empty) arguments.emplace_back();
    arguments.emplace_back(argument.substr(0, argument.size() - (empty ? 1 : 0)));
  }
  return arguments;
}

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that exits (`| head`) must not end a training
  CLI::App root("Trains ResNets with synchronous SGD on many ranks.", "lockstep");
  root.set_version_flag("--version", fmt::format("{} (build {})", program_version, build_id()));
  root.footer(help_footer);
  std::vector<Command> commands;
  for (const auto add : {add_train, add_eval, add_pack, add_topo, add_info, add_bench,
                         add_preflight, add_whoami, add_lint, add_scaling, add_simulate})
    commands.push_back(add(Arguments(root)));
  Launch launch;
  try {
    root.parse(reversed_arguments(argc, argv));
  } catch (const CLI::ParseError& error) {
    wait_for_turn(launch, status_bad_input);
    return root.exit(error) == 0 ? status_done : status_bad_input;
  } catch (const InputError& error) {
    return fail(launch, error.what(), status_bad_input);
  }
  launch.argc = argc;
  launch.argv = argv;
  for (const Command& command : commands)
    if (command.app.given()) return run(launch, command);
  wait_for_turn(launch, status_bad_input);
  log::info(root.help());
  return status_bad_input;
}

}  // namespace
}  // namespace lockstep::app

int main(int argc, char** argv) { return lockstep::app::main(argc, argv); }
