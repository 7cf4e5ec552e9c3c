#pragma once

#include <nlohmann/json.hpp>

#include "lockstep/study/doctor/diagnosis.hpp"

namespace lockstep::study {

/// What to_json() writes.
nlohmann::ordered_json json_of(const Diagnosis& diagnosis);

}  // namespace lockstep::study
