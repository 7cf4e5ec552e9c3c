
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/cli/command_line.hpp"
#include "app/commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/study/report/study_report.hpp"

namespace lockstep::app {
namespace {

/// What bench comm measured for these studies: `comm*.json` in their folders.
std::vector<std::string> comm_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (const std::string name = entry.path().filename().string();
          name.starts_with("comm") && name.ends_with(".json"))
        files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

void take_sums(const std::vector<std::string>& files, study::AnalysisSpec& analysis) {
  for (const std::string& file : files)
    analysis.sums.push_back(study::parse_comm(read_text(file), file));
}

/// What fit, predict and report have in common.
struct Questions {
  std::vector<std::string> paths;
  study::ReadSpec read;
  study::AnalysisSpec analysis;
  std::vector<std::string> comm;
  bool json = false;

  void add_to(Arguments app) {
    app.add("path", paths, "studies, runs' folders, JSON of 'bench train', tables (.csv)")
        .required();
    app.add("--match", read.match, "only measurements whose name matches this regular expression")
        .called("REGEX");
    app.add_flag("--mixed", read.mixed, "allow different networks, precisions and machines");
    app.add_flag("--synthetic", analysis.synthetic,
                 "use the measurements without data, where there are both kinds");
    add_count(app, "--fewest", analysis.fit.fewest, {3, 1000},
              "fit a law to at least this many configurations");
    app.add("--confidence", analysis.fit.confidence, "of the intervals")
        .within(0.5, 0.99)
        .shows_default();
    add_count(app, "--buckets", analysis.fit.buckets, {1, 10000},
              "parts in which gradients are reduced while backward runs")
        .shows("as measured");
    app.add("--comm", comm,
            "what bench comm --json measured: exposed communication is computed from it, not "
            "fitted")
        .called("FILE")
        .shows("the comm*.json in a study's folder");
    app.add_taken(
           "--jitter",
           [this](const std::string& text) { analysis.fit.jitter = share_of(text, "--jitter"); },
           "standard deviation of a rank's step, as a share")
        .called("NUMBER")
        .ranges("0 to 1")
        .shows("from the runs");
  }
  static double share_of(const std::string& text, const char* option) {
    const double value = real_number(text).value_or(-1);
    require(value >= 0 && value <= 1,
            fmt::format("{}: '{}' is not a number from 0 to 1", option, text));
    return value;
  }
  void check(const Supposed& supposed) const {
    if (!paths.empty() && std::ranges::all_of(paths, supposed.shows))
      study::read_samples(paths, read);
  }
  study::Analysis answer() {
    take_sums(comm.empty() ? comm_files(paths) : comm, analysis);
    return study::analyse(study::read_samples(paths, read), analysis);
  }
};

void add_sizes(Arguments app, study::ForecastSpec& forecast) {
  app.add_taken(
         "-N,--ranks",
         [&forecast](const std::string& list) { forecast.ranks = counts_of(list, "--ranks"); },
         "numbers of ranks")
      .called("N,N,...")
      .shows("doubled, up to 8 times the most measured");
  add_count(app, "--batch", forecast.batch, {1, config::most_batch_rows},
            "strong scaling: rows of a step, over all ranks");
  add_count(app, "--batch-per-rank", forecast.rows, {1, config::most_batch_rows},
            "weak scaling: rows of a step on each rank");
  add_count(app, "--ranks-per-node", forecast.ranks_per_node, {1, 100000}, "on full nodes")
      .shows("as in the measurements");
}

struct ReportOptions : Questions {
  std::string out, epochs, goal = "the accuracy";
  std::vector<std::string> trainings;
  double top1 = 0;

  void require_epochs() const {
    require(epochs.empty() || trainings.empty(), "--epochs and --trained exclude each other");
    const auto needs = [](bool holds, const char* option, const char* others) {
      require(holds, fmt::format("{} would have no effect without {}", option, others));
    };
    needs(top1 == 0 || !trainings.empty(), "--top1", "--trained");
    const bool has_epochs = analysis.imagenet || !epochs.empty() || !trainings.empty();
    needs(analysis.trainings == 1 || has_epochs, "--trainings",
          "--imagenet, --trained or --epochs");
    needs(!analysis.forecast.node_hours || has_epochs, "--node-hours",
          "--imagenet, --trained or --epochs");
    require(trainings.empty() || top1 > 0, "--trained needs --top1, the accuracy that is wanted");
  }

  void take_epochs() {
    require_epochs();
    if (!epochs.empty()) analysis.forecast.epochs = study::read_epochs(epochs, goal);
    if (!trainings.empty()) analysis.forecast.epochs = study::epochs_of_runs(trainings, top1 / 100);
  }
};

void write_report_files(const std::filesystem::path& folder, const study::Report& report) {
  make_directories(folder);
  write_report(folder / "report.html", report.html);
  write_report(folder / "report.md", report.markdown);
  write_report(folder / "report.tex", report.latex);
  for (const auto& [name, svg] : report.figures) write_report(folder / (name + ".svg"), svg);
}

/// The one rule of all commands that answer from measurements.
int status_of(const study::Analysis& analysis) {
  return analysis.fit ? status_done : status_bad_input;
}

int say(const study::Analysis& analysis, bool json, const std::string& text) {
  log::text(json ? study::analysis_json(analysis) : text);
  return status_of(analysis);
}

}  // namespace

Command add_scaling_fit(Arguments scaling) {
  auto options = std::make_shared<Questions>();
  Arguments app = scaling.add_command(
      "fit", "Fit the law of a step's time to measurements, and name those that contradict it");
  options->add_to(app);
  app.add_flag("--json", options->json, "print JSON");
  return {app,
          [options](Launch&) {
            const study::Analysis analysis = options->answer();
            return say(analysis, options->json, study::fit_text(analysis));
          },
          [options](const Supposed& supposed) { options->check(supposed); }};
}

Command add_scaling_predict(Arguments scaling) {
  auto options = std::make_shared<Questions>();
  Arguments app = scaling.add_command("predict", "Predict speed and efficiency on other ranks");
  options->add_to(app);
  add_sizes(app, options->analysis.forecast);
  app.add_flag("--json", options->json, "print JSON");
  return {app,
          [options](Launch&) {
            const study::Analysis analysis = options->answer();
            return say(analysis, options->json, study::forecast_text(analysis));
          },
          [options](const Supposed& supposed) { options->check(supposed); }};
}

Command add_scaling_report(Arguments scaling) {
  auto options = std::make_shared<ReportOptions>();
  Arguments app = scaling.add_command(
      "report",
      "Write report.html, report.md and report.tex: what was measured, what to expect, what it "
      "costs, which size to ask for, and the paragraph for a proposal");
  options->add_to(app);
  study::AnalysisSpec& analysis = options->analysis;
  add_sizes(app, analysis.forecast);
  app.add("--out", options->out, "the folder to write to").required();
  add_count(app, "--epoch-rows", analysis.forecast.epoch_rows, {1, std::size_t{1} << 40},
            "rows of an epoch")
      .shows("as in the runs");
  app.add_flag("--imagenet", analysis.imagenet,
               "epochs to accuracy from MLPerf's reference for ResNet-50 on ImageNet");
  app.add("--epochs", options->epochs, "a .csv table with the columns batch,epochs").called("FILE");
  app.add("--goal", options->goal, "what these epochs reach").shows_default();
  app.add("--trained", options->trainings, "trainings of your own to take the epochs from");
  app.add("--top1", options->top1, "the top-1 in % that they had to reach").within(0, 100);
  app.add("--efficiency", analysis.forecast.efficiency, "the least of the recommended size")
      .within(0, 1)
      .shows_default();
  app.add("--node-hours", analysis.forecast.node_hours, "the most that a training may cost")
      .within(0, 1e9);
  add_count(app, "--trainings", analysis.trainings, {1, 1000000}, "how many the proposal asks for");
  return {app,
          [options](Launch&) {
            options->take_epochs();
            const study::Analysis found = options->answer();
            write_report_files(options->out, study::make_report(found, options->analysis));
            log::info(fmt::format("{}: report.html report.md report.tex", options->out));
            if (!found.fit) log::warn(found.why_no_fit);
            return status_of(found);
          },
          [options](const Supposed& supposed) {
            if (supposed.whole) options->require_epochs();
            options->check(supposed);
          }};
}

int report_study(const std::string& folder) {
  study::AnalysisSpec spec;
  take_sums(comm_files({folder}), spec);
  const study::Analysis analysis = study::analyse(study::read_samples({folder}, {}), spec);
  write_report_files(folder, study::make_report(analysis, spec));
  log::text(study::fit_text(analysis));
  log::info(fmt::format("{}: report.html report.md report.tex", folder));
  return status_of(analysis);
}

}  // namespace lockstep::app
