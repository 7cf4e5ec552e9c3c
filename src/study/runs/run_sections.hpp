#pragma once

#include <string>
#include <vector>

#include "study/page/document.hpp"
#include "study/runs/story.hpp"

/// The sections of a page about runs. Each is empty where the records have nothing for it.
namespace lockstep::study {

// Over all runs.
std::vector<Block> curves_section(const std::vector<RunStory>& runs);
std::vector<Block> key_differences_section(const std::vector<RunStory>& runs);
std::vector<Block> figures_table(const std::vector<RunStory>& runs);

// Of one run.
std::vector<Block> phases_section(const RunStory& run);
std::vector<Block> ranks_section(const RunStory& run);
std::vector<Block> nodes_section(const RunStory& run);
std::vector<Block> starts_section(const RunStory& run);
std::vector<Block> ledger_section(const RunStory& run);
std::vector<Block> job_section(const RunStory& run);
std::vector<Block> reproduce_section(const RunStory& run);

/// Nodes' GPUs, each once: ranks may share one.
std::size_t gpus_of(const RunStory& run);
/// Name and value: core-hours, GPU-hours and energy of all starts.
std::vector<std::vector<std::string>> used_rows(const RunStory& run);

/// "2026-11-25 14:03:12 UTC"; "?" for 0.
std::string utc_text(std::uint64_t ms);
std::string percent_text(double share);  ///< "91.25 %"

}  // namespace lockstep::study
