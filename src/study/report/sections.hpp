#pragma once

#include <vector>

#include "lockstep/study/report/study_report.hpp"
#include "study/page/document.hpp"

/// The sections of a report; each says nothing where the analysis has nothing.
namespace lockstep::study {

/// "resnet50, bf16, on 8 x A100"
std::string subject(const Analysis& analysis);

std::vector<Block> rehearsal_section(const Analysis& analysis);
std::vector<Block> measured_section(const Analysis& analysis);
std::vector<Block> law_section(const Analysis& analysis);
std::vector<Block> forecast_section(const Analysis& analysis);
std::vector<Block> cost_section(const Analysis& analysis, const AnalysisSpec& spec);
std::vector<Block> proposal_section(const Analysis& analysis, const AnalysisSpec& spec);
std::vector<Block> figures_section(const Analysis& analysis);

}  // namespace lockstep::study
