// Times all-reduces over two levels against flat ones on the nodes of a job, one after the other in
// each round, and counts the bytes that the nodes send to each other:
//   srun -N4 --ntasks-per-node=2 two_level [megabytes = 25] [of a bucket = 25] [rounds = 7]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/cluster/identity/identify.hpp"
#include "lockstep/cluster/identity/rendezvous.hpp"
#include "lockstep/comm/control_plane.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/comm/two_level/two_level.hpp"
#include "lockstep/comm/worlds/tcp.hpp"
#include "lockstep/comm/worlds/world.hpp"

namespace {

using namespace lockstep;

struct Figures {
  std::vector<double> times_ms;
  std::vector<double> sent;  ///< bytes of each round, by all nodes
};

/// What this node's interfaces have sent, but for the one to itself.
double bytes_sent() {
  std::ifstream file("/proc/net/dev");
  double sum = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.find("lo:") < colon) continue;
    std::istringstream numbers(line.substr(colon + 1));
    double value = 0;
    for (int i = 0; i < 9; ++i) numbers >> value;  // the ninth column: bytes that were sent
    sum += value;
  }
  return sum;
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// One round: the time of the slowest rank, and what all nodes sent.
void measure(comm::Communicator& communicator, comm::Control& control, const comm::Nodes& nodes,
             std::vector<float>& values, std::size_t bucket, Figures& figures) {
  const bool leads = nodes.leads_node(communicator.rank());
  std::fill(values.begin(), values.end(), 1.0f);
  control.barrier("before");
  const double sent_before = leads ? bytes_sent() : 0;
  control.barrier("begin");
  const double began_ms = now_ms();
  for (std::size_t at = 0; at < values.size(); at += bucket)
    communicator.all_reduce(
        comm::elements(values.data() + at, std::min(bucket, values.size() - at)),
        comm::Reduction::sum, "bucket", communicator.network());
  communicator.network().synchronize();
  const double took_ms = now_ms() - began_ms;
  figures.times_ms.push_back(control.max({took_ms}, "time")[0]);
  figures.sent.push_back(control.sum({leads ? bytes_sent() - sent_before : 0}, "bytes")[0]);
  const auto sum = static_cast<float>(communicator.world());
  check(std::all_of(values.begin(), values.end(), [sum](float value) { return value == sum; }),
        "a sum is wrong");
}

void report(const char* name, const Figures& figures, double formula) {
  fmt::print("{:<10} {:9.1f} ms", name, lower_median(figures.times_ms));
  const double sent = lower_median(figures.sent);
  if (formula > 0)
    fmt::print("  {:7.2f} MB between nodes, {:.3f} of the formula's {:.2f}", sent / 1e6,
               sent / formula, formula / 1e6);
  fmt::print("\n");
}

/// Starts MPI. Under srun, a message that reaches a rank still in MPI_Init makes it crash (see
/// World), so the ranks first meet over TCP. `met` must outlive what they do: to the others the end
/// of its connections would look like that of this process.
std::unique_ptr<comm::World> start(int& argc, char**& argv,
                                   std::optional<comm::ControlPlane>& met) {
  const cluster::EnvLookup env = cluster::process_environment();
  const cluster::RankInfo self = cluster::identify(env, std::nullopt);
  const auto place = cluster::meeting_place(env, self);  // MPI's start changes the environment
  return std::make_unique<comm::World>(argc, argv, [&] {
    if (!place) return;
    met.emplace(comm::meet_over_tcp(*place, self, {}), 60);
    met->control().barrier("start of MPI");
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<comm::ControlPlane> met;
  const std::unique_ptr<comm::World> world = start(argc, argv, met);
  const double megabytes = argc > 1 ? std::atof(argv[1]) : 25;
  const double bucket_megabytes = argc > 2 ? std::atof(argv[2]) : 25;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 7;
  std::vector<float> values(static_cast<std::size_t>(megabytes * 1e6 / sizeof(float)));
  const auto bucket = static_cast<std::size_t>(bucket_megabytes * 1e6 / sizeof(float));

  comm::ControlPlane plane(world->make_fabric(120), 120);
  comm::Control* const control = &plane.control();
  const auto flat = plane.connect(120);
  const comm::Nodes nodes = comm::gather_nodes(*control, comm::place_of_process(host_name()));
  const comm::TwoLevel made = comm::make_two_level(*flat, *control, nodes, {.deadline_s = 120});
  check(made.communicator != nullptr, made.obstacle);

  Figures of_flat, of_two, unused;
  measure(*flat, *control, nodes, values, bucket, unused);
  measure(*made.communicator, *control, nodes, values, bucket, unused);
  for (int round = 0; round < rounds; ++round) {
    measure(*flat, *control, nodes, values, bucket, of_flat);
    measure(*made.communicator, *control, nodes, values, bucket, of_two);
  }
  if (world->facts().rank != 0) return 0;
  // A rank sends (and gets) the chunks of all others, both ways; a node those of all other nodes.
  const auto ranks = static_cast<double>(nodes.world()), count = static_cast<double>(nodes.count());
  const double bytes = static_cast<double>(values.size() * sizeof(float));
  const double per_node = ranks / count;
  const double flat_bytes = 2 * bytes * (ranks - per_node);
  const double two_bytes = 2 * bytes * (count - 1);
  fmt::print("{} ranks on {} nodes, {} MB in buckets of {} MB, medians of {} rounds\n",
             nodes.world(), nodes.count(), megabytes, bucket_megabytes, rounds);
  report("flat", of_flat, flat_bytes);
  report("two-level", of_two, two_bytes);
  fmt::print("two-level is {:.2f} times as fast\n",
             lower_median(of_flat.times_ms) / lower_median(of_two.times_ms));
}
