
#include <algorithm>

#include <fmt/format.h>

#include "app/commands.hpp"
#include "app/start/compute.hpp"
#include "app/start/traps_here.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/table.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/study/machine/comm_figures.hpp"
#include "lockstep/study/machine/nccl_table.hpp"

namespace lockstep::app {
namespace {

const std::vector<std::string> known_verbs = {"all-reduce", "reduce-scatter", "all-gather",
                                              "broadcast", "send"};
constexpr const char* queued = "all-reduce, queued";
constexpr std::size_t in_queue = 4;

struct CommBenchOptions {
  std::vector<std::string> verbs;
  double from_kb = 4, to_mb = 256, longest_s = 1, deadline_s = 120;
  std::string backend = "auto", all_reduce = "auto", json;
  bool share_gpu = false;
};

/// The ranks, connected, and memory that their collectives move.
struct Wires {
  Compute compute;  ///< on GPUs
  std::unique_ptr<comm::Communicator> flat, two_level;
  std::unique_ptr<backend::Parameters> on_device;
  std::vector<float> on_host;
  float* data = nullptr;
  std::size_t floats = 0;
  std::string transport;
  comm::Communicator& used() { return two_level ? *two_level : *flat; }
};

/// A network whose only weights are this many: a way to get memory of the device.
nn::Network network_of(std::size_t floats) {
  constexpr std::size_t inputs = 1024;
  const std::size_t classes = std::max<std::size_t>(1, floats / inputs);
  const nn::Shape pixel{inputs, 1, 1};
  nn::Network network{.name = "memory", .input = pixel, .classes = classes, .nodes = {}};
  network.nodes.push_back({.name = "input", .op = nn::Op::input, .inputs = {}, .shape = pixel});
  network.nodes.push_back(
      {.name = "fc", .op = nn::Op::linear, .inputs = {0}, .shape = {classes, 1, 1}, .bias = true});
  network.nodes.push_back(
      {.name = "loss", .op = nn::Op::loss, .inputs = {1}, .shape = {classes, 1, 1}});
  return network;
}

Wires connect_wires(Launch& launch, const CommBenchOptions& options, const std::string& backend) {
  Wires wires;
  wires.floats = static_cast<std::size_t>(options.to_mb * 1e6) / sizeof(float);
  if (backend == "cuda") {
    wires.compute = prepare_compute(launch, {.backend = backend, .share_gpu = options.share_gpu});
    wires.flat = connect(launch, wires.compute,
                         {.deadline_s = options.deadline_s, .share_gpu = options.share_gpu});
    wires.on_device =
        wires.compute.backend->make_parameters(network_of(wires.floats), backend::Precision::fp32);
    wires.data = wires.on_device->device_pointer(backend::Part::gradients);
    wires.floats = std::min(wires.floats, wires.on_device->layout().size);
    wires.transport = "NCCL";
    return wires;
  }
  wires.flat = connect_cpus(launch, options.deadline_s);
  wires.on_host.assign(wires.floats, 0.f);
  wires.data = wires.on_host.data();
  wires.transport = launch.tensors ? "MPI" : "TCP";
  wires.two_level = connect_two_level(launch, *wires.flat, options.all_reduce, options.deadline_s);
  if (wires.two_level) wires.transport = "two-level, " + wires.transport;
  return wires;
}

/// Does one verb `times` times. Calls follow each other as the data does: a broadcast and a send go
/// there and back in turn, so that none can begin before the last one has ended.
void do_verb(Wires& wires, const std::string& verb, std::size_t floats, std::size_t times) {
  comm::Communicator& ranks = wires.used();
  device::Stream& network = ranks.network();
  const int last = ranks.world() - 1;
  const comm::Elements data = comm::elements(wires.data, floats);
  for (std::size_t i = 0; i < times; ++i) {
    const int from = i % 2 == 0 ? 0 : last, to = last - from;
    if (verb == "all-reduce") {
      ranks.all_reduce(data, comm::Reduction::sum, verb, network);
    } else if (verb == queued) {
      const std::size_t each = wires.floats / in_queue;
      for (std::size_t q = 0; q < in_queue; ++q)
        ranks.all_reduce(comm::elements(wires.data + q * each, std::min(floats, each)),
                         comm::Reduction::sum, verb, network);
    } else if (verb == "reduce-scatter") {
      ranks.reduce_scatter(data, comm::Reduction::sum, verb, network);
    } else if (verb == "all-gather") {
      ranks.all_gather(data, verb, network);
    } else if (verb == "broadcast") {
      ranks.broadcast(data, from, verb, network);
    } else if (ranks.rank() == from) {
      ranks.send(data, to, verb, network);
    } else if (ranks.rank() == to) {
      ranks.receive(data, from, verb, network);
    }
    network.synchronize();
  }
}

/// Seconds of one call, of the slowest rank, in the fastest of some batches of calls, for what
/// other processes cost is not the network's; and in the middle one, for a step meets those, too. A
/// first, untimed pair decides how many calls.
study::CommPoint time_verb(Launch& launch, Wires& wires, const std::string& verb,
                           std::size_t floats) {
  constexpr double batch_s = 0.05;
  const auto run = [&](std::size_t times) {
    launch.control->barrier("bench comm");
    const double began_s = now_s();
    do_verb(wires, verb, floats, times);
    const double mine_s = (now_s() - began_s) / static_cast<double>(times);
    return launch.control->max({mine_s}, "bench comm")[0];
  };
  run(2);  // makes connections and pages
  const double first_s = run(2);
  const auto calls = 2 * static_cast<std::size_t>(std::clamp(batch_s / first_s / 2, 1.0, 200.0));
  std::vector<double> batches_s;
  for (int batch = 0; batch < (first_s > 0.2 ? 3 : 7); ++batch) batches_s.push_back(run(calls));
  const double each = verb == queued ? in_queue : 1;
  return {.bytes = static_cast<double>(floats * sizeof(float)),
          .seconds = std::min(first_s, *std::ranges::min_element(batches_s)) / each,
          .typical_s = upper_median(batches_s) / each};
}

/// From small to large, until one call takes too long.
study::VerbFigures measure_verb(Launch& launch, Wires& wires, const CommBenchOptions& options,
                                const std::string& verb) {
  std::vector<study::CommPoint> points;
  const auto world = static_cast<std::size_t>(launch.rank.world);
  const std::size_t most = verb == queued ? wires.floats / in_queue : wires.floats;
  for (auto floats = static_cast<std::size_t>(options.from_kb * 1e3) / sizeof(float);
       floats <= most; floats *= 2) {
    const std::size_t count = std::max<std::size_t>(1, floats / world) * world;  // equal chunks
    if (count > wires.floats) break;
    points.push_back(time_verb(launch, wires, verb, count));
    if (points.back().seconds * (verb == queued ? in_queue : 1) > options.longest_s &&
        points.size() >= 3)
      break;
  }
  require(points.size() >= 2,
          "--from-kb and --to-mb leave less than two sizes, one twice the other");
  return study::figures_of(std::move(points));
}

/// A line through small sizes may not rise at all.
std::string rate_text(double bytes_per_s) {
  constexpr double no_limit = 1e15;
  return bytes_per_s < no_limit ? human_bytes(bytes_per_s) + "/s" : "not limited";
}

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", 1e6 * seconds)
                        : fmt::format("{:.2f} ms", 1e3 * seconds);
}

void report_verb(const std::string& verb, const study::VerbFigures& figures, int ranks) {
  std::vector<std::vector<std::string>> rows{{verb, "time", "algbw", "busbw"}};
  for (const study::CommPoint& p : figures.points)
    rows.push_back({human_bytes(p.bytes), time_text(p.seconds), rate_text(p.bytes / p.seconds),
                    rate_text(study::bus_factor(verb, ranks) * p.bytes / p.seconds)});
  log::text(table(rows));
  for (const study::CommRegime& r : figures.regimes)
    log::info(fmt::format("  {} to {}: alpha {}, beta {} (bus {})", human_bytes(r.from_bytes),
                          human_bytes(r.to_bytes), time_text(r.latency_s), rate_text(r.bytes_per_s),
                          rate_text(study::bus_factor(verb, ranks) * r.bytes_per_s)));
  for (const study::CommCliff& c : figures.cliffs)
    log::warn(fmt::format("cliff: {} of {} moves {:.1f} times fewer bytes a second than of {}",
                          verb, human_bytes(c.to_bytes), c.slower, human_bytes(c.from_bytes)));
}

void report_nccl(const std::vector<study::NcclChoice>& choices,
                 const study::VerbFigures& measured) {
  for (const study::CommPoint& p : measured.points) {
    const auto choice = study::nccl_choice(choices, "AllReduce", p.bytes);
    if (!choice) continue;
    log::info(fmt::format("  NCCL expects {} for {} by {}/{}; measured {}",
                          time_text(seconds_of(*choice, p.bytes)), human_bytes(p.bytes),
                          choice->algorithm, choice->protocol, time_text(p.seconds)));
  }
}

std::vector<std::string> verbs_of(const CommBenchOptions& options) {
  std::vector<std::string> verbs = options.verbs.empty() ? known_verbs : options.verbs;
  if (std::find(verbs.begin(), verbs.end(), "all-reduce") != verbs.end())
    verbs.emplace_back(queued);
  return verbs;
}

void require_several(int ranks) {
  require(ranks > 1,
          "bench comm measures what ranks send to each other: start two or more by srun or mpirun");
}

int run(Launch& launch, const CommBenchOptions& options) {
  const std::vector<std::string> verbs = verbs_of(options);
  launch.start(options.deadline_s);
  require_several(launch.rank.world);
  const bool leads = launch.rank.rank == 0;
  if (leads && !options.json.empty()) require_report_fits(options.json);
  const std::string backend = decide_backend(launch, options.backend);
  const NcclLog nccl_log(leads && backend == "cuda" ? "INIT,TUNING" : "");
  Wires wires = connect_wires(launch, options, backend);
  study::CommFigures figures{.ranks = launch.rank.world,
                             .nodes = static_cast<int>(launch.nodes.count()),
                             .transport = wires.transport,
                             .verbs = {},
                             .nccl = {}};
  if (leads)
    log::info(fmt::format("{} on {} by {}; busbw as nccl-tests defines it",
                          counted(static_cast<std::size_t>(figures.ranks), "rank"),
                          counted(launch.nodes.count(), "node"), figures.transport));
  for (const std::string& verb : verbs) {
    figures.verbs[verb] = measure_verb(launch, wires, options, verb);
    if (leads) report_verb(verb, figures.verbs[verb], figures.ranks);
  }
  figures.nccl = nccl_log.text();
  const auto choices = study::parse_nccl_table(figures.nccl);
  if (choices.empty()) figures.nccl.clear();
  const auto reduced = figures.verbs.find("all-reduce");
  if (leads && reduced != figures.verbs.end()) report_nccl(choices, reduced->second);
  if (leads && !options.json.empty()) write_report(options.json, to_json(figures) + "\n");
  return status_done;
}

}  // namespace

Command add_bench_comm(Arguments bench) {
  auto options = std::make_shared<CommBenchOptions>();
  Arguments app = bench.add_command(
      "comm", "Collectives between the ranks of srun or mpirun: time, latency, bandwidth by size");
  app.add("--verb", options->verbs, "which are measured").one_of(known_verbs).shows("all");
  app.add("--from-kb", options->from_kb, "smallest size, 10^3 bytes")
      .within(0.004, 1e6)
      .shows_default();
  app.add("--to-mb", options->to_mb, "largest size, 10^6 bytes").within(0.001, 1e4).shows_default();
  app.add("--longest-s", options->longest_s, "larger sizes are left out once one call takes longer")
      .within(0.001, 1e4)
      .shows_default();
  app.add("--comm.all-reduce,--all-reduce", options->all_reduce,
          "as comm.all-reduce of lockstep train")
      .one_of({"auto", "flat", "two-level"})
      .shows_default();
  add_backend(app, options->backend);
  app.add("--comm.deadline-s,--deadline-s", options->deadline_s,
          "how long a rank waits for the others")
      .within(1, 1e6)
      .shows_default();
  app.add_flag("--comm.share-gpu,--share-gpu", options->share_gpu,
               "ranks may use one GPU together (for tests)");
  add_json_file(app, options->json, "write the figures to this file, for lockstep simulate --comm");
  return {app, [options](Launch& launch) { return run(launch, *options); },
          [](const Supposed& supposed) { require_several(supposed.ranks); }};
}

}  // namespace lockstep::app
