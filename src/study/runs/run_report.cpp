#include "lockstep/study/runs/run_report.hpp"

#include <fmt/core.h>

#include <fstream>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/ending_names.hpp"
#include "study/runs/story.hpp"

namespace lockstep::study {
namespace {

constexpr const char* generator = "lockstep report";

bool ended_well(Ending ending) { return ending == Ending::finished || ending == Ending::running; }

Verdict verdict_of(const RunStory& run, bool alone) {
  std::string text = fmt::format("{}{}: {}", alone ? "" : run.name + ": ",
                                 choice_name(run.why.ending), run.why.what);
  return {std::move(text), run.why.advice, ended_well(run.why.ending)};
}

void add_run(const RunStory& run, bool alone, Document& document) {
  std::vector<Block> blocks = phases_section(run);
  for (auto* section : {ranks_section, nodes_section})
    for (Block& block : section(run)) blocks.push_back(std::move(block));
  if (!blocks.empty()) {
    document.add({Heading{alone ? "Ranks and time" : run.name + ": ranks and time"}});
    document.add(std::move(blocks));
  } else if (!alone) {
    document.add({Heading{run.name}});
  }
  document.add(starts_section(run));
  document.add(ledger_section(run));
  document.add(job_section(run));
  document.add(reproduce_section(run));
}

}  // namespace

RunReport report_runs(const std::vector<std::filesystem::path>& paths) {
  std::vector<RunStory> runs;
  for (const std::filesystem::path& path : paths) runs.push_back(read_story(path));
  const bool alone = runs.size() == 1;
  Document document{alone ? "Run " + runs.front().name : fmt::format("{} runs", runs.size()), {}};
  RunReport report;
  for (const RunStory& run : runs) {
    document.add({verdict_of(run, alone)});
    for (const std::string& note : run.notes)
      report.notes.push_back(fmt::format("{}: {}", run.name, note));
  }
  if (!report.notes.empty()) document.add({Items{report.notes}});
  document.add(figures_table(runs));
  if (!alone) document.add(key_differences_section(runs));
  document.add(curves_section(runs));
  for (const RunStory& run : runs) add_run(run, alone, document);
  report.html = as_html(document, generator);
  report.text = as_text(document);
  return report;
}

bool is_run_report(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string head(4096, '\0');
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(stream.gcount()));
  return head.find(fmt::format("<meta name=\"generator\" content=\"{}\">", generator)) !=
         std::string::npos;
}

}  // namespace lockstep::study
