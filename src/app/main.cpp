#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "app/cli/command_line.hpp"
#include "app/commands.hpp"
#include "app/start/end.hpp"
#include "app/start/meeting_options.hpp"
#include "lockstep/base/build_id.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/processor.hpp"
#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/comm/waits/absence.hpp"

namespace lockstep::app {
namespace {

constexpr const char* out_of_memory = "out of memory";
constexpr const char* program_version = "lockstep 0.1";
constexpr const char* help_footer = "lockstep help COMMAND lists a command's options.";

/// What stdout did not take. A reader that has left (`| head`) has what it wanted.
std::string fault_of_output() {
  const int fault = log::lost_output();
  return fault == 0
             ? ""
             : fmt::format("the standard output cannot be written: {}", std::strerror(fault));
}

int run(Launch& launch, const Command& command, Product product) {
  take_meeting();
  RankEnd end(launch);
  try {
    const int status = command.run(launch);
    if (const std::string fault = fault_of_output(); product == Product::text && !fault.empty())
      throw Error(fault);
    return end.all_know(status);
  } catch (const cluster::LaunchError& error) {  // all find the same fault
    if (end.rank() != 0 && !end.under_mpirun()) return status_bad_input;
    return end.all_know(status_bad_input, [&] { log::error(error.what()); });
  } catch (const InputError& error) {
    return end.one_knows(error, status_bad_input);
  } catch (const comm::MissingRanks& missing) {
    return missing.told ? end.all_know(status_lost_rank)  // rank 0 says which
                        : end.one_knows(missing, status_lost_rank);
  } catch (const comm::OutsideFault& error) {
    return end.one_knows(error, status_lost_rank);
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string what = error.path1().string() + ": " + error.code().message();
    const bool machine = is_machine_fault(error.code().value());
    return end.one_knows({machine ? status_failed : status_bad_input, what, ending_in(what)});
  } catch (const std::bad_alloc&) {
    return end.one_knows({status_failed, out_of_memory, Ending::out_of_memory});
  } catch (const std::system_error& error) {  // of a thread
    const std::string what = fmt::format(
        "a thread cannot be started: {}: a limit of memory or of processes (ulimit -v, ulimit -u, "
        "the job's)",
        error.code().message());
    return end.one_knows({status_failed, what});
  } catch (const std::exception& error) {
    return end.one_knows(error, status_failed);
  }
}

/// Given back when memory runs out, so that there is some to say so.
std::atomic<char*> g_reserve = nullptr;

void keep_reserve() {
  constexpr std::size_t bytes = 1 << 20;
  g_reserve = new char[bytes];
  std::set_new_handler([] {
    delete[] g_reserve.exchange(nullptr);
    throw std::bad_alloc();
  });
}

/// NO_COLOR, where it is set and not empty, means no colours: https://no-color.org
void use_terminal() {
  const cluster::EnvLookup env = cluster::process_environment();
  const bool redraws = env("TERM").value_or("") != "dumb";
  log::set_terminal(redraws, redraws && env("NO_COLOR").value_or("").empty());
}

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that exits (`| head`) must not end a training
  std::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is then an error that names the file
  prepare_descriptors();
  keep_reserve();
  use_terminal();
  CommandLine line(
      argc, argv,
      fmt::format("{} (build {}, {})", program_version, build_id(), least_instruction_set()),
      std::string(status_help) + help_footer);
  std::vector<Command> commands;
  for (const auto& [add, product] : all_commands) commands.push_back(add(line.root()));
  Launch launch;
  launch.argc = argc;
  launch.argv = argv;
  std::optional<std::string> asked_for;
  try {
    asked_for = line.parse();
  } catch (const InputError& error) {
    return RankEnd(launch).one_knows(error, status_bad_input);
  }
  if (asked_for) {
    RankEnd(launch).all_know(status_done, [&] { log::text(*asked_for); });
    const std::string fault = fault_of_output();
    return fault.empty() ? status_done : RankEnd(launch).one_knows({status_failed, fault});
  }
  for (std::size_t i = 0; i < commands.size(); ++i)
    if (commands[i].app.given()) return run(launch, commands[i], all_commands[i].product);
  return RankEnd(launch).all_know(status_bad_input, [&] { log::text(line.help()); });
}

}  // namespace
}  // namespace lockstep::app

int main(int argc, char** argv) {
  try {
    return lockstep::app::main(argc, argv);
  } catch (const std::bad_alloc&) {  // before a command began
    std::fprintf(stderr, "error: %s\n", lockstep::app::out_of_memory);
    return lockstep::app::status_failed;
  }
}
