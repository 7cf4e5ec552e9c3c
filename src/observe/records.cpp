#include "lockstep/observe/records.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/join.hpp"
#include "observe/flat_line.hpp"

namespace lockstep::observe {
namespace {

using Json = nlohmann::json;

/// Lines of older programs have no kind.
std::string kind_of(const Json& json) {
  require(json.is_object(), "it is not a JSON object");
  if (const auto kind = json.find("kind"); kind != json.end()) {
    require(kind->is_string(), "\"kind\" is not a text");
    return kind->get<std::string>();
  }
  for (const auto& [field, kind] :
       {std::pair{"step", "step"}, {"last_step", "epoch"}, {"resumed_from_step", "resume"}})
    if (json.contains(field)) return kind;
  throw InputError("it has no \"kind\"");
}

std::vector<double> column(const std::vector<StepTimes>& sums, double StepTimes::*part,
                           std::uint64_t steps) {
  std::vector<double> values;
  for (const StepTimes& one : sums) values.push_back(one.*part / static_cast<double>(steps));
  return values;
}

}  // namespace

StepTimes& StepTimes::operator+=(const StepTimes& more) {
  for (const StepPart& part : step_parts) this->*part.step += more.*part.step;
  return *this;
}

StepTimes StepTimes::operator/(double divisor) const {
  StepTimes times = *this;
  for (const StepPart& part : step_parts) times.*part.step /= divisor;
  return times;
}

Spread spread(std::vector<double> ranks_ms) {
  Spread spread;
  if (ranks_ms.empty()) return spread;
  const auto [least, most] = std::minmax_element(ranks_ms.begin(), ranks_ms.end());
  spread.min_ms = *least;
  spread.max_ms = *most;
  spread.slowest = static_cast<std::uint64_t>(most - ranks_ms.begin());
  spread.median_ms = lower_median(ranks_ms);
  spread.ranks = std::move(ranks_ms);
  return spread;
}

RanksRecord ranks_record(const std::vector<StepTimes>& sums, std::uint64_t steps) {
  RanksRecord record;
  record.steps = steps;
  for (const StepPart& part : step_parts)
    record.*part.ranks = spread(column(sums, part.step, steps));
  return record;
}

std::vector<StepTimes> times_of(const RanksRecord& record) {
  std::vector<StepTimes> times(record.forward.ranks.size());
  for (const StepPart& part : step_parts) {
    const std::vector<double>& ranks = (record.*part.ranks).ranks;
    for (std::size_t rank = 0; rank < std::min(times.size(), ranks.size()); ++rank)
      times[rank].*part.step = ranks[rank];
  }
  return times;
}

StepTimes medians_of(const std::vector<StepTimes>& steps) {
  StepTimes medians;
  for (const StepPart& part : step_parts)
    medians.*part.step = upper_median(column(steps, part.step, 1));
  return medians;
}

std::string to_json(const Record& record) {
  return std::visit([](const auto& one) { return fields_to_json(one); }, record);
}

std::optional<Record> parse_record(std::string_view line) {
  if (const std::optional<StepRecord> step = flat_step(line)) return *step;
  const Json json = Json::parse(line, nullptr, false);
  require(!json.is_discarded(), "it is not JSON");
  const std::string kind = kind_of(json);
  if (kind == "start") return fields_from_json<StartRecord>(json);
  if (kind == "resume") return fields_from_json<ResumeRecord>(json);
  if (kind == "step") return fields_from_json<StepRecord>(json);
  if (kind == "epoch") return fields_from_json<EpochRecord>(json);
  if (kind == "ranks") return fields_from_json<RanksRecord>(json);
  if (kind == "checkpoint") return fields_from_json<CheckpointRecord>(json);
  if (kind == "ledger") return fields_from_json<LedgerRecord>(json);
  if (kind == "end") return fields_from_json<EndRecord>(json);
  return std::nullopt;
}

StrangeLines read_records(const std::filesystem::path& path,
                          const std::function<bool(const Record&)>& take) {
  require_regular(path);
  std::ifstream file(path);
  require(file.good(), fmt::format("{} cannot be read", path.string()));
  StrangeLines strange;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (file.eof()) break;
    std::optional<Record> record;
    try {
      record = parse_record(line);
    } catch (const InputError& error) {
      if (strange.count++ > 0) continue;
      strange.first = number;
      strange.reason = error.what();
    }
    if (record && !take(*record)) break;
  }
  require(!file.bad(), fmt::format("{} cannot be read to its end", path.string()));
  return strange;
}

std::string describe(const StrangeLines& lines, const std::filesystem::path& path) {
  if (lines.count == 0) return "";
  return fmt::format("{}: {} not records of lockstep; the first is line {}: {}", path.string(),
                     lines.count == 1 ? "1 line is" : counted(lines.count, "line") + " are",
                     lines.first, lines.reason);
}

}  // namespace lockstep::observe
