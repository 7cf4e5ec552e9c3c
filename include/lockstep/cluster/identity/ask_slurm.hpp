#pragma once

#include <string>

namespace lockstep::cluster {

/// The first line of what a command of Slurm answers, without blanks at its end. Empty where there
/// is no such command, or no answer within 10 s.
std::string ask_slurm(const std::string& command);

}  // namespace lockstep::cluster
