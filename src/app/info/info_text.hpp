#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "lockstep/data/shard/data_set.hpp"

namespace lockstep::app {

/// What `lockstep info --json` prints about a run, a checkpoint or a data set, for people.
std::string info_as_text(const nlohmann::ordered_json& found);

/// How a data set's rows are stored in their files, how many a thread reads per second (measured
/// for some tenths of a second, from disk or memory, wherever they are), and what would make
/// reading faster. `uncached`: the same rows, of which no decoded chunk is kept.
nlohmann::ordered_json reading_as_json(const data::DataSet& rows, const data::DataSet& uncached);
std::string reading_as_text(const nlohmann::ordered_json& reading);

}  // namespace lockstep::app
