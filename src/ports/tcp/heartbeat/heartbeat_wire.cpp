#include "ports/tcp/heartbeat/heartbeat_wire.hpp"

#include <algorithm>

#include "lockstep/comm/record.hpp"

namespace lockstep::tcp {
namespace {

// A larger message would end the connection.
constexpr std::size_t most_text = heartbeat_message_limit / 2;

template <class Value>
std::string message(char mark, const Value& value) {
  return mark + comm::write_record(value);
}

template <class Value>
Value read(std::string_view message) {
  check(!message.empty(), "a heartbeat's message is empty");
  return comm::read_record<Value>(message.substr(1));
}

}  // namespace

char mark_of(std::string_view message) { return message.empty() ? '\0' : message.front(); }

std::string make_beat(const comm::Activity& activity, double starved_s) {
  return message(beat_mark, Beat{activity, starved_s});
}

Beat read_beat(std::string_view message) { return read<Beat>(message); }

std::string make_end(char mark, liveness::End end) {
  end.why.resize(std::min(end.why.size(), most_text));
  return message(mark, end);
}

liveness::End read_end(std::string_view message) { return read<liveness::End>(message); }

std::string make_question(const AbsenceQuestion& question) {
  return message(question_mark, question);
}

AbsenceQuestion read_question(std::string_view message) { return read<AbsenceQuestion>(message); }

std::string make_finding(AbsenceFinding finding) {
  if (finding.absence)
    finding.absence->text.resize(std::min(finding.absence->text.size(), most_text));
  return message(finding_mark, finding);
}

AbsenceFinding read_finding(std::string_view message) { return read<AbsenceFinding>(message); }

std::string make_probe(std::uint64_t round) { return message(probe_mark, round); }

std::uint64_t read_probe(std::string_view message) { return read<std::uint64_t>(message); }

std::string make_report(const ProbeReport& report) { return message(report_mark, report); }

ProbeReport read_report(std::string_view message) { return read<ProbeReport>(message); }

std::string make_look(int rank) { return message(look_mark, rank); }

int read_look(std::string_view message) { return read<int>(message); }

std::string make_sight(const Sight& sight) { return message(sight_mark, sight); }

Sight read_sight(std::string_view message) { return read<Sight>(message); }

}  // namespace lockstep::tcp
