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

/// Writes report.html, report.md, report.tex and the pictures into the folder of a study whose
/// steps are all done. Returns the exit status.
int report_study(const std::string& folder);

}  // namespace lockstep::app
