#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::app {

/// What `lockstep info --json` prints about a run, a checkpoint or a data set, for people.
std::string info_as_text(const nlohmann::ordered_json& found);

}  // namespace lockstep::app
