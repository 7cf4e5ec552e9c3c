#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "app/commands.hpp"
#include "app/fail.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/study/runs/run_report.hpp"
#include "lockstep/study/why/why.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;
  bool text = false;
};

/// A page of an earlier report is replaced; what is anything else is kept.
void require_page_fits(const fs::path& out) {
  require(!fs::is_directory(out), fmt::format("-o {}: is a folder: name a file", out.string()));
  require_report_fits(out);
  require(!fs::is_regular_file(out) || fs::file_size(out) == 0 || study::is_run_report(out),
          fmt::format("-o {}: there is a file that is not a report of lockstep, and it is not "
                      "written over: name another",
                      out.string()));
}

/// Of several runs, those that are runs; the others are told, and make the status that of bad
/// input. Throws InputError where none is.
std::vector<fs::path> those_that_are(const std::vector<std::string>& names) {
  std::vector<fs::path> runs;
  for (const std::string& name : names) {
    try {
      study::require_run(name);
      runs.emplace_back(name);
    } catch (const InputError& error) {
      if (names.size() == 1) throw;
      log::error(error.what());
    }
  }
  require(!runs.empty(), "none of these is the folder of a run");
  return runs;
}

int make_page(Launch& launch, const ReportOptions& options) {
  if (leave_to_rank_0(launch)) return status_done;
  require(options.text || !options.out.empty(), "name the page that is to be made: -o FILE.html");
  if (!options.out.empty()) require_page_fits(options.out);
  const std::vector<fs::path> runs = those_that_are(options.runs);
  const study::RunReport report = study::report_runs(runs);
  for (const std::string& note : report.notes) log::warn(note);
  if (options.text) log::text(report.text);
  if (!options.out.empty()) {
    write_report(options.out, report.html);
    log::info(
        fmt::format("{}: {}", options.out, human_bytes(static_cast<double>(report.html.size()))));
  }
  return runs.size() == options.runs.size() ? status_done : status_bad_input;
}

}  // namespace

Command add_report(Arguments root) {
  auto options = std::make_shared<ReportOptions>();
  Arguments app = root.add_command(
      "report",
      "Make one page about runs from their folders, also of a run that was killed: how they ended, "
      "curves, where time went, ranks, nodes, faults, and how to repeat them");
  app.add("runs", options->runs, "the runs' folders; several are compared").required();
  app.add("-o,--out", options->out, "the page: one file that needs nothing else").called("FILE");
  app.add_flag("--text", options->text, "print the report without its pictures");
  return {app, [options](Launch& launch) { return make_page(launch, *options); }};
}

}  // namespace lockstep::app
