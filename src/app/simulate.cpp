#include <algorithm>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/command_line.hpp"
#include "app/commands.hpp"
#include "app/scaling/simulation.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/share.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/table.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/topology/machine.hpp"
#include "lockstep/study/machine/node_paths.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_known_ranks = 10'000;

/// The numbers of ranks to simulate: those given; the measured one; or 1, a node, and on from there
/// to 10,000.
std::vector<std::size_t> worlds_of(const SimulateOptions& options, const Simulation& all) {
  std::vector<std::size_t> worlds;
  for (const std::string& text : options.ranks)
    for (const std::size_t world : counts_of(text, "--ranks")) worlds.push_back(world);
  if (all.measured) {
    const auto measured = static_cast<std::size_t>(all.measured->ranks);
    for (const std::size_t world : worlds)
      require(
          world == 1 || world == measured,
          fmt::format("--ranks {}: {} was measured with {} ranks, and says nothing about others",
                      world, options.comm, measured));
    if (worlds.empty()) worlds = {1, measured};
  }
  if (!worlds.empty()) return worlds;
  worlds = {1};
  const auto add = [&](std::size_t world) {
    const bool rows = all.training.batch == 0 || all.training.batch >= world;
    const bool shared = all.training.shards == 0 || all.training.shards >= world;
    if (rows && shared && world % all.training.model_options.norm_ranks == 0)
      worlds.push_back(world);
  };
  for (std::size_t world = std::max<std::size_t>(2, all.per_node); world < most_known_ranks;
       world *= 2)
    add(world);
  add(most_known_ranks);
  return worlds;
}

Json to_json(const study::StepTimeline& step) {
  Json buckets = Json::array();
  for (const study::BucketTimes& one : step.buckets)
    buckets.push_back({{"bytes", one.bytes},
                       {"ready_ms", one.ready_ms},
                       {"start_ms", one.start_ms},
                       {"end_ms", one.end_ms}});
  return buckets;
}

Json simulate(const SimulateOptions& options, const Simulation& all) {
  Json points = Json::array();
  const std::vector<std::size_t> worlds = worlds_of(options, all);
  // A single line has no other one to be compared with.
  const std::size_t base_world = worlds.size() > 1 ? worlds.front() : 1;
  const auto rows_per_s = [&](std::size_t world, std::size_t batch,
                              const study::StepTimeline& step) {
    return 1e3 * static_cast<double>(batch) / (static_cast<double>(world) * step.step_ms());
  };
  const std::size_t base_batch = all.on(base_world).batch;
  const double base =
      rows_per_s(base_world, base_batch,
                 all.step(base_world, even_share(base_batch, base_world, 0), all.bucket_mb));
  for (const std::size_t world : worlds) {
    // The rank that has most of a batch: the others wait for it.
    const std::size_t batch = all.on(world).batch, rows = even_share(batch, world, 0);
    const study::StepTimeline step = all.step(world, rows, all.bucket_mb);
    const double each = rows_per_s(world, batch, step), rate = each * static_cast<double>(world);
    points.push_back({{"ranks", world},
                      {"nodes", study::Layout{world, all.per_node}.nodes()},
                      {"batch", batch},
                      {"step_ms", step.step_ms()},
                      {"compute_ms", step.compute_ms()},
                      {"exposed_comm_ms", step.exposed_ms},
                      {"jitter_ms", step.jitter_ms},
                      {"norms_ms", step.norms_ms},
                      {"images_per_s", rate},
                      {"images_per_s_and_rank", each},
                      {"efficiency", each / base},
                      {"bucket_mb", all.bucket_mb},
                      {"best_bucket_mb", all.best_bucket_mb(world, rows)},
                      {"buckets", to_json(step)}});
  }
  return {{"machine", all.machine.name},        {"source", all.machine.source},
          {"model", all.network.name},          {"precision", to_string(all.training.precision)},
          {"pace", describe(all.pace)},         {"base_ranks", base_world},
          {"base_images_per_s_and_rank", base}, {"points", std::move(points)}};
}

std::string cell(const Json& point, const char* key, int digits) {
  return fmt::format("{:.{}f}", point[key].get<double>(), digits);
}

void report(const Json& json, bool buckets) {
  constexpr int norms_column = 6;
  log::info(fmt::format("{} in {} on {}: {}", json["model"].get<std::string>(),
                        json["precision"].get<std::string>(), json["machine"].get<std::string>(),
                        json["pace"].get<std::string>()));
  std::vector<std::vector<std::string>> rows{{"ranks", "nodes", "batch", "ms a step", "compute",
                                              "exposed comm.", "batch norms", "jitter", "images/s",
                                              "a rank", "efficiency", "best bucket"}};
  for (const Json& point : json["points"])
    rows.push_back({point["ranks"].dump(), point["nodes"].dump(), point["batch"].dump(),
                    cell(point, "step_ms", 2), cell(point, "compute_ms", 2),
                    cell(point, "exposed_comm_ms", 2), cell(point, "norms_ms", 2),
                    cell(point, "jitter_ms", 2), cell(point, "images_per_s", 0),
                    cell(point, "images_per_s_and_rank", 1),
                    fmt::format("{:.1f} %", 100 * point["efficiency"].get<double>()),
                    fmt::format("{} MB", point["best_bucket_mb"].get<double>())});
  if (json["points"].back()["norms_ms"] == 0)
    for (auto& row : rows) row.erase(row.begin() + norms_column);
  log::text(table(rows) +
            fmt::format("buckets of {} MB; efficiency is a rank's images/s relative to that on {}, "
                        "{:.1f}",
                        json["points"][0]["bucket_mb"].get<double>(),
                        counted(json["base_ranks"], "rank"),
                        json["base_images_per_s_and_rank"].get<double>()));
  if (const Json& largest = json["points"].back(); largest["ranks"] > most_known_ranks)
    log::warn(
        fmt::format("no machine was measured on more than {} ranks: beyond, sums between "
                    "ranks are a guess",
                    most_known_ranks));
  if (!buckets) return;
  const Json& last = json["points"].back();
  log::info(
      fmt::format("buckets on {}, ms from the step's start:", counted(last["ranks"], "rank")));
  for (const Json& one : last["buckets"])
    log::info(fmt::format("  {:>9}: full at {:.2f}, sent from {:.2f}, summed at {:.2f}",
                          human_bytes(one["bytes"].get<double>()), one["ready_ms"].get<double>(),
                          one["start_ms"].get<double>(), one["end_ms"].get<double>()));
}

/// Logs the paths inside the node that the hwloc file describes, and what binding is worth there.
/// Returns them. Throws InputError as cluster::look_at_machine() does.
Json show_node_paths(const std::string& hwloc_xml, const study::MachineProfile& profile) {
  const cluster::Machine machine = cluster::look_at_machine(hwloc_xml);
  const double cross_gb_per_s =
      profile.cross_gb_per_s > 0 ? profile.cross_gb_per_s : study::usual_cross_gb_per_s;
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows{
      {"GPU", "NUMA node", "bound GB/s", "unbound GB/s", "card", "GPUs on it", "card GB/s"}};
  for (const study::RankPath& path : study::node_paths(machine, cross_gb_per_s)) {
    rows.push_back(
        {path.pci_bus_id, std::to_string(path.numa), fmt::format("{:.1f}", path.bound_gb_per_s),
         fmt::format("{:.1f}", path.unbound_gb_per_s), path.card.empty() ? "none" : path.card,
         std::to_string(path.card_gpus),
         fmt::format("{:.1f}{}", path.card_gb_per_s, path.card_across ? ", other socket" : "")});
    list.push_back({{"gpu", path.gpu},
                    {"pci_bus_id", path.pci_bus_id},
                    {"numa", path.numa},
                    {"bound_gb_per_s", path.bound_gb_per_s},
                    {"unbound_gb_per_s", path.unbound_gb_per_s},
                    {"card", path.card},
                    {"card_gpus", path.card_gpus},
                    {"card_across", path.card_across},
                    {"card_gb_per_s", path.card_gb_per_s}});
  }
  log::info(fmt::format("{}: {}, {}, {:.0f} GB/s between sockets", hwloc_xml,
                        counted(machine.gpus.size(), "GPU"),
                        counted(machine.numa.size(), "NUMA node"), cross_gb_per_s));
  if (!list.empty()) log::text(table(rows));
  return list;
}

/// Throws InputError naming an option that was given without the one that it is about.
void require_effects(const Arguments& app, const SimulateOptions& options,
                     const config::Config& training) {
  const auto needs = [&](const char* option, bool met, const char* other) {
    require(met || !app.given(option),
            fmt::format("{} would have no effect without {}", option, other));
  };
  needs("--power-sgd-gb-s", training.comm.power_sgd > 0, "--comm.power-sgd");
  needs("--efficiency", !options.tape.empty(), "--tape");
}

int run(Launch& launch, const Arguments& app, const SimulateOptions& options) {
  if (launch.leave_to_rank_0()) return status_done;
  const Simulation all(options);
  require_effects(app, options, all.training);
  Json json = simulate(options, all);
  report(json, options.buckets);
  if (!options.hwloc.empty()) json["paths"] = show_node_paths(options.hwloc, all.machine);
  if (!options.json.empty()) write_report(options.json, json_text(json, 1) + "\n");
  return status_done;
}

}  // namespace

Command add_simulate(Arguments root) {
  auto options = std::make_shared<SimulateOptions>();
  Arguments app = root.add_command(
      "simulate",
      "Predict a training's step on a machine that is not here, on any number of ranks. Takes all "
      "keys of a training; where none is given, the machine's model, precision and buckets count, "
      "and 32 rows a rank");
  add_machine_options(app, *options).required();
  app.add("--ranks", options->ranks, "numbers of ranks")
      .called("N,N,...")
      .shows("1, a node, ... up to 10,000");
  app.add("--power-sgd-gb-s", options->power_sgd_gb_s,
          "10^9 bytes of gradients that a rank makes products of in a second")
      .within(0.001, 1e6)
      .shows_default();
  app.add("--hwloc", options->hwloc,
          "also show the paths inside a node that this describes (lstopo --of xml)")
      .called("FILE");
  app.add_flag("--list-buckets,--buckets", options->buckets,
               "list the buckets of the last line's step");
  add_json_file(app, options->json, "write all of it to this file");
  options->run.add_to(app);
  return {app, [options, app](Launch& launch) { return run(launch, app, *options); },
          [options, app](const Supposed& supposed) {
            for (const std::string& file : {options->machine, options->tape, options->comm})
              if (!supposed.whole || (!file.empty() && !supposed.shows(file)))
                return (void)options->run.config();
            const Simulation all(*options);
            require_effects(app, *options, all.training);
          }};
}

}  // namespace lockstep::app
