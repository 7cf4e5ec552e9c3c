#include "app/scaling/simulation.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/train/run_data.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

constexpr double usual_bucket_mb = 25;
constexpr double tried_buckets_mb[] = {1, 2, 4, 8, 16, 25, 50, 100};
constexpr std::size_t usual_rows = 32;  // of each rank

/// A machine's pace is that of plain steps.
void say_what_is_left_out(const config::Config& training, const std::set<std::string>& answered) {
  std::vector<std::string> keys;
  for (const config::ConfigKey* key : config::changed_keys(training))
    if (key->of_pace && !answered.contains(key->name)) keys.push_back(key->name);
  if (!keys.empty())
    log::warn(fmt::format("the simulation does not know what {} {} of a step's time",
                          join(keys, ", "), keys.size() == 1 ? "makes" : "make"));
}

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

Argument add_machine_options(Arguments app, SimulateOptions& options) {
  Argument machine =
      app.add("--machine", options.machine, "description of the machine: jobs/machines/*.toml")
          .called("FILE");
  add_count(app, "--per-node", options.per_node, {0, 4096, true},
            "ranks of each node; auto: the machine's devices");
  app.add("--tape", options.tape,
          "instead of the machine's pace: a tape that bench train --layers --json measured, or a "
          "GPU's profile (jobs/gpus)")
      .called("FILE");
  app.add("--efficiency", options.efficiency,
          "share of its stated rates that the profile's GPU reaches")
      .within(0.001, 1)
      .shows_default();
  app.add("--comm", options.comm,
          "instead of the machine's network: what bench comm --json measured")
      .called("FILE");
  return machine;
}

data::DataSetInfo rows_of_training(const config::Config& training) {
  return training.data.train.empty() ? train::synthetic_rows(training)
                                     : train::trained_rows(training);
}

Simulation::Simulation(const SimulateOptions& options)
    : machine(options.machine.empty()
                  ? study::ideal_machine()
                  : study::parse_machine(read_text(options.machine), options.machine)) {
  const study::DeviceProfile& device = machine.device;
  config::Config usual;
  usual.model = device.model;
  usual.precision = device.precision;
  training = options.run.of_steps("a simulation has no run", usual);
  if (!options.answered.contains("stages"))
    config::require_whole_replicas(training, "this is about steps");
  if (training.data.size == 0 && training.model == device.model) training.data.size = device.image;
  if (training.batch == 0 && training.batch_per_rank == 0) training.batch_per_rank = usual_rows;
  say_what_is_left_out(training, options.answered);
  network = infer::make_network(training, rows_of_training(training));
  pace = options.tape.empty() ? backend::Pace(study::pace_for(device, network, training.precision))
                              : backend::read_pace(options.tape, options.efficiency);
  if (!options.comm.empty()) measured = read_comm(options.comm);
  per_node = options.per_node > 0 ? options.per_node : machine.devices_per_node;
  bucket_mb = training.comm.bucket_mb > 0 ? training.comm.bucket_mb
                                          : machine.bucket_mb.value_or(usual_bucket_mb);
  exchange_ = train::exchange_of(training);
  check_exchange(options.comm);
  if (training.model_options.norm_ranks > 1) check_norms(options.comm);
  wire_share_ = reduce::wire_share(train::exchange_of(training.comm.wire));
  if (exchange_ != reduce::ExchangeKind::power_sgd) return;
  // Two sums of a half of what travels, as if all buckets became smaller alike.
  const nn::ArenaLayout arena = backend::plain_layout(network);
  const reduce::LowRankTraffic traffic =
      reduce::power_sgd_traffic(arena, {.rank = training.comm.power_sgd});
  wire_share_ = static_cast<double>(traffic.thin + traffic.exact) / static_cast<double>(arena.size);
  sums_ = 2;
  compress_gb_s_ = options.power_sgd_gb_s;
}

config::Config Simulation::on(std::size_t world) const {
  config::Config config = world == 1 ? config::alone(training) : training;
  config::resolve(config, static_cast<int>(world));
  return config;
}

void Simulation::check_exchange(const std::string& comm) const {
  if (!measured) return;
  require(exchange_ != reduce::ExchangeKind::local && exchange_ != reduce::ExchangeKind::gossip,
          comm +
              ": measured sums, and with sync.every or sync.gossip ranks send weights: leave out "
              "--comm");
  if (exchange_ == reduce::ExchangeKind::int8) require_gathers(*measured, comm);
}

void Simulation::check_norms(const std::string& comm) const {
  const std::size_t ranks = training.model_options.norm_ranks;
  const std::string asked = fmt::format("model-options.norm-ranks = {}", ranks);
  require(machine.network.by == study::SumBy::direct,
          fmt::format("{}: {} does not share batch norm's statistics between ranks, CPUs do "
                      "(sum-by = \"direct\"); leave it out",
                      asked, machine.name));
  if (!measured) return;
  require(static_cast<std::size_t>(measured->ranks) == ranks,
          fmt::format("{}: {} was measured with {} ranks, and says nothing about groups of others",
                      asked, comm, measured->ranks));
  require_gathers(*measured, comm);
}

/// What the weights' way adds to a step of this length: each step sends as many, and they have come
/// `late` steps later.
double Simulation::gossip_exposed_ms(const study::Layout& layout, std::size_t numbers,
                                     double compute_ms) const {
  const study::ReduceCost push =
      study::push_cost(machine.network, layout, static_cast<double>(numbers * sizeof(float)));
  const double busy_ms = 1e3 * push.busy_s, whole_ms = busy_ms + 1e3 * push.delay_s;
  const std::size_t late = training.sync.gossip_late;
  if (late == 0) return whole_ms;
  const double step_ms = std::max(busy_ms, whole_ms / static_cast<double>(late));
  return std::max(0.0, step_ms - compute_ms);
}

study::ReduceCost Simulation::sum_cost(const study::Layout& layout, double bytes) const {
  if (layout.ranks == 1 || exchange_ == reduce::ExchangeKind::gossip) return {};
  if (exchange_ == reduce::ExchangeKind::int8)
    return measured ? study::int8_cost(*measured, bytes)
                    : study::int8_cost(machine.network, layout, bytes);
  const double sent = wire_share_ * bytes / sums_;
  study::ReduceCost one = measured ? study::all_reduce_cost(*measured, sent)
                                   : study::all_reduce_cost(machine.network, layout, sent);
  one.busy_s *= sums_;
  one.delay_s *= sums_;
  return one;
}

study::StepTimeline Simulation::step(std::size_t world, std::size_t rows, double buckets_mb) const {
  const study::Layout layout{.ranks = world, .per_node = per_node};
  const std::size_t group = train::has_groups_by_node(training) ? per_node : 1;
  const bool rare = exchange_ == reduce::ExchangeKind::local && world > group;
  const bool gossips = exchange_ == reduce::ExchangeKind::gossip && world > 1;
  const study::Layout each_step = rare ? study::Layout{group, group} : layout;
  const std::size_t norm_ranks = training.model_options.norm_ranks;
  const auto cost = [&](double bytes) { return sum_cost(each_step, bytes); };
  const nn::ArenaLayout arena = backend::plain_layout(network);
  const backend::TimedTape tape = time_tape(network, rows, training.precision, pace);
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
  if (compress_gb_s_ > 0 && world > 1)  // by the device that computes: nothing hides it
    step.exposed_ms += 1e3 * weights / (1e9 * compress_gb_s_);
  if (gossips) step.exposed_ms += gossip_exposed_ms(layout, arena.size, step.compute_ms());
  if (rare) {  // nothing hides an agreement
    const study::ReduceCost all = study::all_reduce_cost(machine.network, layout, weights);
    step.exposed_ms += 1e3 * (all.busy_s + all.delay_s) / static_cast<double>(training.sync.every);
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
