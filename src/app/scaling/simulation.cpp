#include "app/scaling/simulation.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/nn/resnet.hpp"
#include "lockstep/reduce/exchange.hpp"
#include "lockstep/study/simulate/norm_gathers.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

constexpr double usual_bucket_mb = 25;
constexpr double tried_buckets_mb[] = {1, 2, 4, 8, 16, 25, 50, 100};

/// Throws InputError naming the file where that was not measured.
void require_gathers(const study::CommFigures& figures, const std::string& file) {
  require(figures.verbs.contains("all-gather"),
          file + ": has no all-gather: measure it by bench comm");
}

study::CommFigures read_comm(const std::string& file) {
  study::CommFigures figures = study::parse_comm(read_text(file), file);
  require(figures.verbs.contains("all-reduce"),
          file + ": has no all-reduce: measure it by bench comm");
  return figures;
}

}  // namespace

Simulation::Simulation(const SimulateOptions& options)
    : machine(study::parse_machine(read_text(options.machine), options.machine)) {
  const study::DeviceProfile& device = machine.device;
  const std::string model = options.model.empty() ? device.model : options.model;
  const std::size_t image =
      options.image == 0 && model == device.model ? device.image : options.image;
  network = nn::resnet(nn::usual_resnet(model, image, options.classes));
  precision =
      options.precision.empty() ? device.precision : backend::parse_precision(options.precision);
  pace = options.tape.empty() ? backend::Pace(study::pace_for(device, network, precision))
                              : backend::read_pace(options.tape, options.efficiency);
  if (!options.comm.empty()) measured = read_comm(options.comm);
  per_node = options.per_node > 0 ? options.per_node : machine.devices_per_node;
  bucket_mb =
      options.bucket_mb > 0 ? options.bucket_mb : machine.bucket_mb.value_or(usual_bucket_mb);
  wire = train::exchange_of(parse_choice<config::Wire>(options.wire, "--wire"));
  wire_share = reduce::wire_share(wire);
  if (measured && wire == reduce::ExchangeKind::int8) require_gathers(*measured, options.comm);
  sync_every = options.sync_every;
  norm_ranks = options.norm_ranks;
  if (options.gossip) gossip_late = options.gossip_late;
  check_exchange(options);
  if (options.power_sgd > 0) set_power_sgd(options);
  if (norm_ranks > 1) check_norms(options.comm);
}

void Simulation::check_exchange(const SimulateOptions& options) const {
  const bool plain = options.wire == "fp32";
  require(options.power_sgd == 0 || (plain && sync_every == 1),
          "--power-sgd says how gradients travel in each step: leave out --wire and --sync-every");
  require(sync_every == 1 || (!measured && plain),
          "--sync-every sends sums inside of nodes and weights between them: leave out --comm and "
          "--wire");
  require(!gossip_late || (sync_every == 1 && !measured && plain && options.power_sgd == 0),
          "--gossip sends weights in each step: leave out --sync-every, --comm, --wire and "
          "--power-sgd");
}

void Simulation::check_norms(const std::string& comm) const {
  const std::string asked = fmt::format("--norm-ranks {}", norm_ranks);
  require(sync_every == 1 && !gossip_late,
          asked + " is for ranks with equal weights: leave out --sync-every and --gossip");
  require(machine.network.by == study::SumBy::direct,
          fmt::format("{}: {} does not share batch norm's statistics between ranks, CPUs do "
                      "(sum-by = \"direct\"); leave it out",
                      asked, machine.name));
  if (!measured) return;
  require(static_cast<std::size_t>(measured->ranks) == norm_ranks,
          fmt::format("{}: {} was measured with {} ranks, and says nothing about groups of others",
                      asked, comm, measured->ranks));
  require_gathers(*measured, comm);
}

/// Two sums of a half of what travels, as if all buckets became smaller alike.
void Simulation::set_power_sgd(const SimulateOptions& options) {
  const nn::ArenaLayout arena = backend::plain_layout(network);
  const reduce::LowRankTraffic traffic =
      reduce::power_sgd_traffic(arena, {.rank = options.power_sgd});
  wire_share = static_cast<double>(traffic.thin + traffic.exact) / static_cast<double>(arena.size);
  sums = 2;
  compress_gb_s = options.power_sgd_gb_s;
}

/// What the weights' way adds to a step of this length: each step sends as many, and they have come
/// `late` steps later.
double Simulation::gossip_exposed_ms(const study::Layout& layout, std::size_t numbers,
                                     double compute_ms) const {
  const study::ReduceCost push =
      study::push_cost(machine.network, layout, static_cast<double>(numbers * sizeof(float)));
  const double busy_ms = 1e3 * push.busy_s, whole_ms = busy_ms + 1e3 * push.delay_s;
  if (*gossip_late == 0) return whole_ms;
  const double step_ms = std::max(busy_ms, whole_ms / static_cast<double>(*gossip_late));
  return std::max(0.0, step_ms - compute_ms);
}

study::ReduceCost Simulation::sum_cost(const study::Layout& layout, double bytes) const {
  if (layout.ranks == 1 || gossip_late) return {};
  if (wire == reduce::ExchangeKind::int8)
    return measured ? study::int8_cost(*measured, bytes)
                    : study::int8_cost(machine.network, layout, bytes);
  const double sent = wire_share * bytes / sums;
  study::ReduceCost one = measured ? study::all_reduce_cost(*measured, sent)
                                   : study::all_reduce_cost(machine.network, layout, sent);
  one.busy_s *= sums;
  one.delay_s *= sums;
  return one;
}

study::StepTimeline Simulation::step(std::size_t world, std::size_t rows, double buckets_mb) const {
  const study::Layout layout{.ranks = world, .per_node = per_node};
  const bool rare = sync_every > 1 && layout.nodes() > 1;
  const study::Layout each_step = rare ? study::Layout{per_node, per_node} : layout;
  const auto cost = [&](double bytes) { return sum_cost(each_step, bytes); };
  const nn::ArenaLayout arena = backend::plain_layout(network);
  const backend::TimedTape tape = time_tape(network, rows, precision, pace);
  const auto bucket_bytes = static_cast<std::size_t>(buckets_mb * 1e6);
  const auto gather_s = [&](double bytes) {
    return measured ? study::seconds_of(measured->verbs.at("all-gather"),
                                        bytes * static_cast<double>(norm_ranks))
                    : study::gather_s(machine.network, layout, norm_ranks, bytes);
  };
  study::StepTimeline step = norm_ranks > 1 && world > 1
                                 ? study::simulate_step(tape, network, bucket_bytes, cost, gather_s)
                                 : study::simulate_step(tape, arena, bucket_bytes, cost);
  const auto weights = static_cast<double>(arena.size * sizeof(float));
  if (compress_gb_s > 0 && world > 1)  // by the device that computes: nothing hides it
    step.exposed_ms += 1e3 * weights / (1e9 * compress_gb_s);
  if (gossip_late && world > 1)
    step.exposed_ms += gossip_exposed_ms(layout, arena.size, step.compute_ms());
  if (rare) {  // nothing hides an agreement
    const study::ReduceCost all = study::all_reduce_cost(machine.network, layout, weights);
    step.exposed_ms += 1e3 * (all.busy_s + all.delay_s) / static_cast<double>(sync_every);
  }
  // What the slowest of one node loses is in the device's pace already.
  const auto later = [](std::size_t ranks) { return expected_largest(static_cast<double>(ranks)); };
  const double ranks_more = later(world) - later(std::min(world, per_node));
  step.jitter_ms = machine.device.jitter * ranks_more * step.compute_ms();
  return step;
}

double Simulation::best_bucket_mb(std::size_t world, std::size_t rows) const {
  const auto step_ms = [&](double mb) { return step(world, rows, mb).step_ms(); };
  return *std::min_element(std::begin(tried_buckets_mb), std::end(tried_buckets_mb),
                           [&](double a, double b) { return step_ms(a) < step_ms(b); });
}

}  // namespace lockstep::app
