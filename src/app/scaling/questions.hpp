#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/commands.hpp"

namespace lockstep::app {

/// `lockstep scaling fit`, `predict` and `report`: what measurements say.
Command add_scaling_fit(Arguments scaling);
Command add_scaling_predict(Arguments scaling);
Command add_scaling_report(Arguments scaling);
/// `lockstep scaling plan` and `run`: making the measurements.
Command add_scaling_plan(Arguments scaling);
Command add_scaling_run(Arguments scaling);

/// The numbers of a list "1,2,4". Throws InputError naming the option.
std::vector<std::size_t> counts_of(const std::string& list, const char* option);

/// Writes report.html, report.md, report.tex and the pictures into the folder of a study whose
/// steps are all done.
void report_study(const std::string& folder);

}  // namespace lockstep::app
