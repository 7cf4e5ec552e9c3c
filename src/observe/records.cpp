#include "lockstep/observe/records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/observe/summary.hpp"

namespace lockstep::observe {
namespace {

/// A long run has half a million lines of steps, for which a tree of JSON takes several seconds.
/// This reads an object of numbers, nulls and plain texts where it lies, and takes nothing that it
/// does not understand as a tree of JSON would: good() is then false, and the caller reads the
/// tree.
class FlatLine {
 public:
  explicit FlatLine(std::string_view line) : left_(line) { good_ = split() && left_.empty(); }

  /// The text of a field; empty without one.
  std::string_view text_of(std::string_view name) const {
    const Field* field = find(name);
    return field && field->value.starts_with('"') ? field->value.substr(1, field->value.size() - 2)
                                                  : std::string_view();
  }
  /// Every field was read, once, and as what it is.
  bool good() const { return good_ && read_ == count_; }

  template <class Value>
  void operator()(const char* name, Value& value, Form = Form::plain) {
    if (const Field* field = find(name))
      get(*field, value);
    else
      good_ = false;
  }
  template <class Value>
  void later(const char* name, Value& value, Form = Form::plain) {
    if (const Field* field = find(name)) get(*field, value);
  }
  template <class Fields>
  void group(const char* first, std::optional<Fields>& fields) {
    fields.reset();
    if (find(first)) Fields::fields(fields.emplace(), *this);
  }
  void unless_empty(const char*, const Scores&) {}  ///< a line with them is not flat
  void stamp(const char*, std::uint64_t& time_ms) {
    read_ += find("kind") != nullptr;
    later("time_ms", time_ms);
  }

 private:
  struct Field {
    std::string_view name, value;
  };

  bool split() {
    if (!take('{')) return false;
    do {
      if (count_ == fields_.size()) return false;
      Field& field = fields_[count_++];
      field.name = take_text();
      if (field.name.size() < 3 || !take(':')) return false;
      field.name = field.name.substr(1, field.name.size() - 2);
      field.value =
          left_.starts_with('"') ? take_text() : left_.substr(0, left_.find_first_of(",}"));
      if (!field.value.starts_with('"')) left_.remove_prefix(field.value.size());
      if (field.value.empty()) return false;
    } while (take(','));
    return take('}');
  }
  bool take(char c) {
    if (!left_.starts_with(c)) return false;
    left_.remove_prefix(1);
    return true;
  }
  /// With its quotation marks; empty where it is no plain text.
  std::string_view take_text() {
    const std::size_t end = left_.starts_with('"') ? left_.find('"', 1) : left_.npos;
    if (end == left_.npos) return {};
    const std::string_view text = left_.substr(0, end + 1);
    left_.remove_prefix(end + 1);
    for (const char c : text)
      if (c == '\\' || static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~')
        return {};
    return text;
  }
  const Field* find(std::string_view name) const {
    for (std::size_t k = 0; k < count_; ++k)
      if (fields_[k].name == name) return &fields_[k];
    return nullptr;
  }

  /// What JSON has as a number: no sign in front but a minus, no zero before other digits.
  static bool json_number(std::string_view text) {
    const std::size_t digits = text.find_first_not_of('-');
    return digits < 2 && digits < text.size() && text[digits] >= '0' && text[digits] <= '9' &&
           text.back() >= '0' && text.back() <= '9' && text.find(".e") == text.npos &&
           text.find(".E") == text.npos &&
           (text[digits] != '0' || digits + 1 == text.size() || text[digits + 1] < '0' ||
            text[digits + 1] > '9');
  }
  template <class Value>
  void parse(const Field& field, Value& value) {
    const char* end = field.value.data() + field.value.size();
    const auto [stop, error] = std::from_chars(field.value.data(), end, value);
    good_ = good_ && json_number(field.value) && error == std::errc() && stop == end;
    ++read_;
  }
  void get(const Field& field, std::uint64_t& value) { parse(field, value); }
  template <std::floating_point Value>
  void get(const Field& field, Value& value) {
    if (field.value == "null") {
      value = std::numeric_limits<Value>::quiet_NaN();
      ++read_;
      return;
    }
    double number = 0;
    parse(field, number);
    value = static_cast<Value>(number);
  }
  template <class Value>
  void get(const Field& field, std::optional<Value>& value) {
    value.reset();
    if (field.value == "null")
      ++read_;
    else
      get(field, value.emplace());
  }

  std::string_view left_;
  std::array<Field, 40> fields_;
  std::size_t count_ = 0, read_ = 0;
  bool good_ = false;
};

/// A step's line; empty where the line is something else, or is for a tree of JSON to judge.
inline std::optional<StepRecord> flat_step(std::string_view line) {
  FlatLine flat(line);
  if (flat.text_of("kind") != "step") return std::nullopt;
  StepRecord step;
  StepRecord::fields(step, flat);
  if (!flat.good()) return std::nullopt;
  return step;
}

}  // namespace

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

std::string to_json(const Summary& summary) { return fields_to_json(summary, true) + "\n"; }

Summary read_summary(const std::filesystem::path& path) {
  return read_fields<Summary>(parse_json<nlohmann::json>(read_text(path), path.string()),
                              path.string());
}

namespace {

struct Taker {
  Course& course;

  void operator()(const StartRecord& start) const {
    course.starts.push_back(start);
    course.end.reset();
  }
  void operator()(const ResumeRecord& resume) const { course.resumes.push_back(resume); }
  void operator()(const StepRecord& step) const { course.steps = step.step; }
  void operator()(const EpochRecord& epoch) const { course.epochs.push_back(epoch); }
  void operator()(const RanksRecord&) const {}
  void operator()(const CheckpointRecord&) const {}
  void operator()(const LedgerRecord&) const {}
  void operator()(const EndRecord& end) const { course.end = end; }
};

}  // namespace

Course read_course(const std::filesystem::path& metrics) {
  Course course;
  if (!std::filesystem::exists(metrics)) return course;
  course.strange = read_records(metrics, [&](const Record& record) {
    std::visit([&](const auto& one) { course.newest_ms = one.time_ms; }, record);
    std::visit(Taker{course}, record);
    return true;
  });
  return course;
}

}  // namespace lockstep::observe
