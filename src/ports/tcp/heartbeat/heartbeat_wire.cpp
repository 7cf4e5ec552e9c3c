#include "ports/tcp/heartbeat/heartbeat_wire.hpp"

#include <fmt/core.h>

#include <sstream>

#include "lockstep/comm/record.hpp"

namespace lockstep::comm {
std::string make_beat(const Activity& activity) {
  return fmt::format("{} {} {} {} {} {} {} {}", beat_mark, activity.step,
                     static_cast<int>(activity.phase), activity.bucket, activity.bytes,
                     static_cast<int>(activity.waiting), activity.movements,
                     static_cast<int>(activity.on_files));
}

std::optional<Activity> read_beat(std::string_view message) {
  std::istringstream words{std::string(message)};
  char mark = 0;
  int phase = 0;
  Activity activity;
  words >> mark >> activity.step >> phase >> activity.bucket >> activity.bytes >>
      activity.waiting >> activity.movements >> activity.on_files;
  if (!words || mark != beat_mark) return std::nullopt;
  activity.phase = static_cast<Phase>(phase);
  return activity;
}

std::string make_end(char mark, int status, std::string_view why) {
  return fmt::format("{} {} {}", mark, status, why.substr(0, heartbeat_message_limit / 2));
}

End read_end(std::string_view message) {
  std::istringstream words{std::string(message)};
  char mark = 0;
  End end;
  words >> mark >> end.status >> std::ws;
  std::getline(words, end.why, '\0');
  return end;
}

std::string make_question(const AbsenceQuestion& question) {
  return question_mark + write_record(question);
}

AbsenceQuestion read_question(std::string_view message) {
  return read_record<AbsenceQuestion>(message.substr(1));
}

std::string make_finding(const AbsenceFinding& finding) {
  return finding_mark + write_record(finding);
}

AbsenceFinding read_finding(std::string_view message) {
  return read_record<AbsenceFinding>(message.substr(1));
}

std::string make_probe(std::uint64_t round) {
  return probe_mark + write_record(ProbeReport{round, {}});
}

std::uint64_t read_probe(std::string_view message) { return read_report(message).round; }

std::string make_report(const ProbeReport& report) { return report_mark + write_record(report); }

ProbeReport read_report(std::string_view message) {
  return read_record<ProbeReport>(message.substr(1));
}

}  // namespace lockstep::comm
