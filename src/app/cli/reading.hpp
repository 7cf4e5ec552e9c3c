#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/data/data_set.hpp"

namespace lockstep::app {

/// How a data set's rows lie in their files, how many a thread reads in a second (measured for some
/// tenths of one, from wherever they are now: disk or memory), and what would make it faster.
nlohmann::ordered_json reading_as_json(const data::DataSet& rows);
std::string reading_as_text(const nlohmann::ordered_json& reading);

}  // namespace lockstep::app
