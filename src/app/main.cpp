#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "status.hpp"

namespace lockstep::app {
namespace {

constexpr const char* kVersion = "lockstep 0.1";
constexpr const char* kFooter =
    "Exit status: 0 done; 1 an error; 2 bad input or usage; 3 stopped by SIGTERM, SIGUSR1 or\n"
    "--stop-after with a checkpoint, from which --resume auto goes on.\n"
    "lockstep COMMAND --help lists a command's options.";

/// Lets rank 0 speak first, which ends the others: an error that all ranks find alike (a missing
/// file, a typing error) is said once.
void wait_for_turn(const Launch& launch) {
  int rank = launch.rank.rank;
  if (!launch.world) {
    try {
      rank = sys::identify(sys::process_environment(), std::nullopt).rank;
    } catch (const InputError&) {
      return;  // who this is cannot be told; its own message says why
    }
  }
  if (rank != 0) std::this_thread::sleep_for(std::chrono::seconds(1));
}

/// Says what went wrong and ends all ranks: the others may be waiting for this one.
int fail(const Launch& launch, const char* what, int status) {
  wait_for_turn(launch);
  log::error(what);
  if (launch.world) comm::World::abort(status);
  return status;
}

int run(Launch& launch, const Command& command) {
  try {
    return command.run(launch);
  } catch (const InputError& error) {
    return fail(launch, error.what(), status_bad_input);
  } catch (const std::exception& error) {
    return fail(launch, error.what(), status_failed);
  }
}

int main(int argc, char** argv) {
  CLI::App root("Trains ResNets with synchronous SGD on many ranks.", "lockstep");
  root.set_version_flag("--version", kVersion);
  root.require_subcommand(1);
  root.footer(kFooter);
  const std::vector<Command> commands = {add_train(root), add_eval(root), add_pack(root),
                                         add_topo(root),  add_info(root), add_bench(root)};
  Launch launch;
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    wait_for_turn(launch);
    return root.exit(error) == 0 ? status_done : status_bad_input;
  }
  launch.argc = argc;
  launch.argv = argv;
  for (const Command& command : commands)
    if (command.app->parsed()) return run(launch, command);
  return status_bad_input;
}

}  // namespace
}  // namespace lockstep::app

int main(int argc, char** argv) { return lockstep::app::main(argc, argv); }
