// What rank 0's heartbeat takes of a core, in worlds of several sizes. This process is rank 0; a
// child process holds the connections of all other ranks and sends their beats, spread evenly:
//   heartbeat [ranks = 128 256 512 1024] [seconds of each = 8]
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/liveness/heartbeat.hpp"
#include "ports/tcp/heartbeat/heartbeat_wire.hpp"
#include "ports/tcp/meeting/handshake.hpp"

namespace {

using namespace lockstep;

constexpr double beats_a_second = 4;

void nap(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// Rank 0's Control at the start of a heartbeat. It keeps what rank 0 tells the others.
class Start final : public comm::Control {
 public:
  explicit Start(int world) : world_(world) {}
  int rank() const override { return 0; }
  int world() const override { return world_; }
  std::string told;

 private:
  std::string meet(const std::string& mine, std::string_view, const Combine& combine) override {
    return told = combine(Parts(static_cast<std::size_t>(world_), mine));
  }
  int world_;
};

/// In the child process: all ranks but rank 0, until it is killed. Writes a byte to `ready` when
/// all are connected.
[[noreturn]] void be_the_others(tcp::ListenerCard card, int world, int ready) {
  card.addresses = {"127.0.0.1"};
  const auto others = static_cast<std::size_t>(world - 1);
  std::vector<std::unique_ptr<tcp::ConnectAttempt>> tries(others);
  std::vector<tcp::Wire> wires(others);
  for (std::size_t in = 0; in < others; nap(0.002))
    for (std::size_t i = 0; i < others; ++i) {
      if (wires[i].open()) continue;
      if (!tries[i] || tries[i]->failed())
        tries[i] = std::make_unique<tcp::ConnectAttempt>(card, tcp::heartbeat_purpose,
                                                         static_cast<int>(i) + 1, world);
      if (auto wire = tries[i]->poll()) wires[i] = std::move(*wire), ++in;
    }
  if (::write(ready, "r", 1) != 1) std::_Exit(1);
  const double began_s = now_s();
  for (std::uint64_t beat = 0;; ++beat) {
    const double due_s = static_cast<double>(beat) / (static_cast<double>(others) * beats_a_second);
    if (const double left_s = began_s + due_s - now_s(); left_s > 0) nap(left_s);
    tcp::Wire& wire = wires[beat % others];
    wire.send(tcp::make_beat({beat / others, comm::Phase::forward, 0, 0, false, beat}));
    while (wire.receive()) continue;
  }
}

double core_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

void measure(int world, double seconds) {
  Start start(world);
  const auto heartbeat = liveness::start_heartbeat(
      {"host", 20, 120, 4, [](int status) { std::_Exit(status); }}, start);
  int ready[2];
  if (::pipe(ready) != 0) std::_Exit(1);
  const double began_s = now_s();
  const pid_t child = ::fork();
  if (child == 0) be_the_others(comm::read_record<tcp::ListenerCard>(start.told), world, ready[1]);
  char byte = 0;
  if (::read(ready[0], &byte, 1) != 1) std::_Exit(1);
  const double joined_s = now_s() - began_s;
  nap(2);
  const double core_s = core_seconds(), from_s = now_s();
  nap(seconds);
  const double took_s = now_s() - from_s;
  fmt::print(
      "{:5} ranks: all connected after {:.2f} s; rank 0's heartbeat takes {:.2f} % of a core\n",
      world, joined_s, 100 * (core_seconds() - core_s) / took_s);
  std::fflush(stdout);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  prepare_descriptors();
  std::vector<int> worlds{128, 256, 512, 1024};
  double seconds = 8;
  if (argc > 1) worlds = {std::atoi(argv[1])};
  if (argc > 2) seconds = std::atof(argv[2]);
  for (const int world : worlds) {  // each in a separate process, which ends without goodbyes
    const pid_t child = ::fork();
    if (child == 0) measure(world, seconds);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
}
