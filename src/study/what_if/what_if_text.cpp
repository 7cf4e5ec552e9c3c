#include <fmt/format.h>

#include <cmath>

#include <nlohmann/json.hpp>
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/study/what_if/what_if.hpp"

namespace lockstep::study {
namespace {

using Json = nlohmann::ordered_json;

constexpr double least_told = 0.01;  // of a step, what one rank gives

double rate_of(const WhatIf& what_if, double step_ms) {
  return 1e3 * static_cast<double>(what_if.batch) / step_ms;
}

bool is_told(const WhatIf& what_if, const Supposition& one) {
  return !one.rank || !one.gain || one.gain->middle >= least_told * what_if.step_ms;
}

std::string gain_text(const Supposition& one) {
  const auto less = [](double ms) { return std::abs(ms) < 0.005 ? 0 : -ms; };  // never "-0.00"
  return Interval{less(one.gain->low), less(one.gain->middle), less(one.gain->high)}.text();
}

Json json_of(const WhatIf& what_if, const Supposition& one) {
  Json json = {{"what", one.what}};
  if (one.rank) json["rank"] = *one.rank;
  if (!one.part.empty()) json["part"] = one.part;
  if (!one.gain) {
    json["not_known"] = one.not_known;
    return json;
  }
  json["gain_ms"] = one.gain->middle;
  json["low_ms"] = one.gain->low;
  json["high_ms"] = one.gain->high;
  json["step_ms"] = what_if.step_ms - one.gain->middle;
  json["images_per_s"] = rate_of(what_if, what_if.step_ms - one.gain->middle);
  return json;
}

Json json_of(const WhatIf& what_if) {
  if (!what_if.not_known.empty())
    return {{"not_known", what_if.not_known}, {"limits", what_if.limits}};
  Json all = Json::array();
  for (const Supposition& one : what_if.all) all.push_back(json_of(what_if, one));
  return {{"basis", what_if.basis},
          {"step_ms", what_if.step_ms},
          {"simulated_ms", what_if.simulated_ms},
          {"limits", what_if.limits},
          {"suppositions", std::move(all)}};
}

}  // namespace

std::string heading_of(const WhatIf& what_if) {
  if (!what_if.not_known.empty()) return fmt::format("what if: not known: {}", what_if.not_known);
  return fmt::format(
      "what if, simulated from {}: a step of {:.2f} ms, by the simulation {:.2f}, would be shorter",
      what_if.basis, what_if.step_ms, what_if.simulated_ms);
}

std::vector<std::vector<std::string>> table_of(const WhatIf& what_if) {
  if (what_if.all.empty()) return {};
  std::vector<std::vector<std::string>> rows = {{"what if", "ms a step", "then", "images/s"}};
  for (const Supposition& one : what_if.all) {
    if (!is_told(what_if, one)) continue;
    if (!one.gain) {
      rows.push_back({one.what, "not known: " + one.not_known, "-", "-"});
      continue;
    }
    const double step_ms = what_if.step_ms - one.gain->middle;
    rows.push_back({one.what, gain_text(one), fmt::format("{:.2f}", step_ms),
                    fmt::format("{:.1f}", rate_of(what_if, step_ms))});
  }
  return rows;
}

std::string limits_of(const WhatIf& what_if) {
  std::string text;
  for (const std::string& limit : what_if.limits) text += limit + "\n";
  if (what_if.all.empty()) return text;
  return text +
         "gains need not add up; what waiting hides today, such as a loader just in time, is not "
         "in them\n";
}

std::string to_json(const Diagnosis& diagnosis, const WhatIf& what_if) {
  Json json = Json::parse(to_json(diagnosis));
  json["what_if"] = json_of(what_if);
  return json_text(json, 2) + "\n";
}

}  // namespace lockstep::study
