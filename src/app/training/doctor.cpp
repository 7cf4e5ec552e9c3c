#include <memory>
#include <string>

#include <fmt/format.h>

#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "app/start/traps_here.hpp"
#include "app/training/training_start.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/table.hpp"
#include "lockstep/study/doctor/diagnosis.hpp"
#include "lockstep/study/what_if/what_if.hpp"
#include "lockstep/train/agreement.hpp"

namespace lockstep::app {
namespace {

struct DoctorOptions {
  RunOptions run;
  std::string records, json;
  double seconds = 170;
};

void tell(const study::Diagnosis& diagnosis) {
  log::info(study::heading_of(diagnosis));
  log::text(table(study::table_of(diagnosis)) + study::conclusion_of(diagnosis));
}

void tell(const study::WhatIf& what_if) {
  log::info(study::heading_of(what_if));
  if (const auto rows = study::table_of(what_if); !rows.empty())
    log::text(table(rows) + study::limits_of(what_if));
}

config::Config training_of(const DoctorOptions& options) {
  options.run.refuse_those_of_runs("doctor makes steps that are thrown away, and writes nothing");
  config::Config training = options.run.config();
  config::require_whole_replicas(training, "doctor examines steps");
  return training;
}

void check_options(const DoctorOptions& options, const Supposed& supposed) {
  if (!options.records.empty()) {
    if (supposed.shows(options.records)) study::read_newest_start(options.records);
    return;
  }
  config::Config training = training_of(options);
  if (!supposed.whole) return train::check_inputs(training, supposed.shows);
  require_data(training);
  config::resolve(training, supposed.ranks);
  training.resume.clear();
  training.out = "runs/of-none-{n}";  // nothing is written
  train::check_run(std::move(training), supposed.ranks, supposed.shows);
}

int examine_training(Launch& launch, const DoctorOptions& options) {
  const double began_s = now_s();
  TrainingStart start = start_training(launch, training_of(options), options.run.recipe());
  warn_of_traps(launch, cluster::TrapScope::all);
  train::require_same_options(start.spec.config, *launch.control);
  train::PreparedRun run(start.spec, *start.compute.backend, *start.communicator, *launch.control);
  const double left_s = options.seconds - (now_s() - began_s);
  const study::Diagnosis diagnosis = study::examine(run, *launch.control, {.seconds = left_s});
  if (launch.rank.rank == 0) {
    tell(diagnosis);
    if (!options.json.empty()) write_report(options.json, study::to_json(diagnosis));
  }
  return diagnosis.stopped ? status_stopped : status_done;
}

int read_records_of(Launch& launch, const DoctorOptions& options) {
  if (launch.leave_to_rank_0()) return status_done;
  if (options.run.given()) {
    options.run.config();  // what is wrong with an option says more
    throw InputError(fmt::format(
        "'{}' is not an option of a training; and to read the records of a run, doctor takes no "
        "options of train",
        options.records));
  }
  const study::NewestStart records = study::read_newest_start(options.records);
  const study::Diagnosis diagnosis = study::diagnose_records(options.records, records);
  const study::WhatIf what_if = study::suppose(options.records, records);
  tell(diagnosis);
  tell(what_if);
  if (!options.json.empty()) write_report(options.json, study::to_json(diagnosis, what_if));
  return status_done;
}

}  // namespace

Command add_doctor(Arguments root) {
  auto options = std::make_shared<DoctorOptions>();
  Arguments app = root.add_command(
      "doctor",
      "Say why a training is slow: what each reason costs in a step, measured by changing one "
      "thing at a time. Start it as the training, with its options; it writes nothing. With a "
      "run's folder: by that run's records alone, and what its steps would be if one thing were "
      "otherwise");
  app.add("run", options->records, "a run's folder, in place of the options of train");
  add_json_file(app, options->json, "write the findings to this file");
  app.add("--seconds", options->seconds, "of all measurements together")
      .within(10, 3600)
      .shows_default();
  options->run.add_to(app);
  return {app,
          [options](Launch& launch) {
            return options->records.empty() ? examine_training(launch, *options)
                                            : read_records_of(launch, *options);
          },
          [options](const Supposed& supposed) { check_options(*options, supposed); }};
}

}  // namespace lockstep::app
