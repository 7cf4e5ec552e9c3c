#include "lockstep/study/doctor/diagnosis.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include "lockstep/base/text/json_text.hpp"

namespace lockstep::study {
namespace {

using Json = nlohmann::ordered_json;

/// What an epoch spends on it, in hours of all cores or GPUs; empty where they are not known.
std::optional<double> device_hours(const Diagnosis& diagnosis, double ms) {
  if (diagnosis.devices == 0) return std::nullopt;
  return ms / 3.6e6 * static_cast<double>(diagnosis.steps_per_epoch) * diagnosis.devices;
}

const char* hours_of(const Diagnosis& diagnosis) {
  return diagnosis.on_gpus ? "GPU-hours" : "core-hours";
}

Json json_of(const Interval& ms) {
  return {{"ms", ms.middle}, {"low_ms", ms.low}, {"high_ms", ms.high}};
}

int place_of(const SlowCause& finding, double step_ms) {
  if (!finding.cost) return 3;
  if (finding.choice) return 2;
  return worth_changing(finding, step_ms) ? 0 : 1;
}

/// Within the noise: then there is nothing to change.
bool costs_nothing(const SlowCause& finding) { return finding.cost && finding.cost->low <= 0; }

double images_per_s(const Diagnosis& diagnosis, double step_ms) {
  return static_cast<double>(diagnosis.batch) / step_ms * 1e3;
}

}  // namespace

bool worth_changing(const SlowCause& finding, double step_ms) {
  if (!finding.cost || finding.choice) return false;
  return finding.cost->middle >= least_share * step_ms &&
         finding.cost->low >= least_share * 2 / 3 * step_ms;
}

void rank_findings(Diagnosis& diagnosis) {
  std::stable_sort(diagnosis.findings.begin(), diagnosis.findings.end(),
                   [&](const SlowCause& a, const SlowCause& b) {
                     const int first = place_of(a, diagnosis.step_ms);
                     const int second = place_of(b, diagnosis.step_ms);
                     if (first != second) return first < second;
                     return a.cost && a.cost->middle > b.cost->middle;
                   });
}

std::vector<std::vector<std::string>> table_of(const Diagnosis& diagnosis) {
  std::vector<std::vector<std::string>> rows = {{"reason", "ms a step", "share",
                                                 fmt::format("{} an epoch", hours_of(diagnosis)),
                                                 "measured effect", "change", "what"}};
  for (const SlowCause& finding : diagnosis.findings) {
    std::vector<std::string> row = {choice_name(finding.reason)};
    if (finding.cost) {
      const auto hours = device_hours(diagnosis, finding.cost->middle);
      row.insert(row.end(),
                 {finding.cost->text(),
                  fmt::format("{:.1f} %", 100 * finding.cost->middle / diagnosis.step_ms),
                  hours ? fmt::format("{:.3g}", *hours) : "unknown"});
    } else {
      row.insert(row.end(), {"not measured", "-", "-"});
    }
    row.push_back(!finding.effect ? "not tried"
                  : finding.effect->middle < 0
                      ? fmt::format("{:.2f} ms more", -finding.effect->middle)
                      : fmt::format("{:.2f} ms less", finding.effect->middle));
    row.push_back(finding.change.empty() || costs_nothing(finding) ? "-" : finding.change);
    row.push_back(finding.cost ? finding.what
                               : fmt::format("{}: {}", finding.what, finding.not_measured));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string heading_of(const Diagnosis& diagnosis) {
  return fmt::format("{}: a step takes {:.2f} ms, {:.1f} images/s", diagnosis.source,
                     diagnosis.step_ms, images_per_s(diagnosis, diagnosis.step_ms));
}

std::string conclusion_of(const Diagnosis& diagnosis) {
  std::string text;
  const auto wrong = [&](const SlowCause& one) { return worth_changing(one, diagnosis.step_ms); };
  const auto first = std::find_if(diagnosis.findings.begin(), diagnosis.findings.end(), wrong);
  if (first == diagnosis.findings.end()) {
    text = fmt::format("nothing worth changing: no measured cost is {:.0f} % of a step\n",
                       100 * least_share);
  } else {
    text = fmt::format("first: {}: {}", choice_name(first->reason), first->what);
    if (!first->change.empty()) text += fmt::format("; {}", first->change);
    if (first->effect)
      text += fmt::format(": {:.1f} images/s instead of {:.1f}",
                          images_per_s(diagnosis, diagnosis.step_ms - first->effect->middle),
                          images_per_s(diagnosis, diagnosis.step_ms));
    text += "\n";
  }
  for (const SlowCause& one : diagnosis.findings)
    if (one.choice && one.effect && one.effect->low > 0)
      text += fmt::format(
          "or a choice, which also changes what is learned: {}: {:.2f} ms a step less\n",
          one.change, one.effect->middle);
  text += diagnosis.floor
              ? fmt::format(
                    "floor: with resident rows and no reduction a step takes {} ms; single "
                    "costs need not add up to the difference\n",
                    diagnosis.floor->text())
              : "floor: not measured\n";
  if (diagnosis.stopped) text += "stopped before all was measured\n";
  return text;
}

std::string to_json(const Diagnosis& diagnosis) {
  Json findings = Json::array();
  for (const SlowCause& finding : diagnosis.findings) {
    Json one = {{"reason", choice_name(finding.reason)}, {"what", finding.what}};
    if (finding.cost) {
      one["cost"] = json_of(*finding.cost);
      one["share"] = finding.cost->middle / diagnosis.step_ms;
      if (const auto hours = device_hours(diagnosis, finding.cost->middle))
        one["device_hours_per_epoch"] = *hours;
    } else {
      one["not_measured"] = finding.not_measured;
    }
    one["worth_changing"] = worth_changing(finding, diagnosis.step_ms);
    one["choice"] = finding.choice;
    one["change"] = finding.change;
    if (finding.effect) one["effect"] = json_of(*finding.effect);
    findings.push_back(std::move(one));
  }
  Json json = {{"source", diagnosis.source},
               {"step_ms", diagnosis.step_ms},
               {"images_per_s", images_per_s(diagnosis, diagnosis.step_ms)},
               {"batch", diagnosis.batch},
               {"steps_per_epoch", diagnosis.steps_per_epoch},
               {"devices", diagnosis.devices},
               {"device_hours", hours_of(diagnosis)},
               {"stopped", diagnosis.stopped}};
  if (diagnosis.floor) json["floor"] = json_of(*diagnosis.floor);
  json["findings"] = std::move(findings);
  return json_text(json, 2) + "\n";
}

}  // namespace lockstep::study
