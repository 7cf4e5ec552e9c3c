#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/comm/waits/absence.hpp"
#include "lockstep/liveness/heartbeat.hpp"
#include "lockstep/liveness/links.hpp"
#include "lockstep/liveness/process_state.hpp"

namespace lockstep::tcp {

/// Stands for the job in a heartbeat's hello.
constexpr const char* heartbeat_purpose = "heartbeat";
constexpr std::size_t heartbeat_message_limit = 1 << 16;  ///< a larger one ends the connection
constexpr std::size_t most_text = heartbeat_message_limit / 2;

/// The messages: a mark and a record.
constexpr char beat_mark = 'b', goodbye_mark = 'g', failure_mark = 'f', end_mark = 'e',
               question_mark = 'q', finding_mark = 'a', probe_mark = 'p', report_mark = 'r',
               look_mark = 'l', sight_mark = 's';
/// A message's mark; 0 when it is empty.
inline char mark_of(std::string_view message) { return message.empty() ? '\0' : message.front(); }

template <class Value>
std::string marked(char mark, const Value& value) {
  return mark + comm::write_record(value);
}
/// Throws Error when the message is cut short or has bytes too many.
template <class Value>
Value unmarked(std::string_view message) {
  check(!message.empty(), "a heartbeat's message is empty");
  return comm::read_record<Value>(message.substr(1));
}

/// A beat says what its sender is doing, and for how long its heartbeat got no core (see
/// liveness::StarvationWatch) since the last beat.
struct Beat {
  comm::Activity activity;
  double starved_s = 0;

  static void fields(auto& self, auto&& visit) { visit(self.activity, self.starved_s); }
};
inline std::string make_beat(const comm::Activity& activity, double starved_s = 0) {
  return marked(beat_mark, Beat{activity, starved_s});
}
/// A failure, or rank 0's order to end: the status to end with, and why, which is cut.
inline std::string make_end(char mark, liveness::End end) {
  end.why.resize(std::min(end.why.size(), most_text));
  return marked(mark, end);
}
/// A rank asks rank 0 which ranks keep it waiting.
struct AbsenceQuestion {
  std::uint64_t number = 0;  ///< counted by the rank that asks; the finding repeats it
  double waited_s = 0;

  static void fields(auto& self, auto&& visit) { visit(self.number, self.waited_s); }
};
struct AbsenceFinding {
  std::uint64_t number = 0;
  std::optional<comm::Absence> absence;

  static void fields(auto& self, auto&& visit) { visit(self.number, self.absence); }
};
inline std::string make_finding(AbsenceFinding finding) {
  if (finding.absence)
    finding.absence->text.resize(std::min(finding.absence->text.size(), most_text));
  return marked(finding_mark, finding);
}
/// Rank 0 asks the first rank of each node, by a round's number, which other nodes it reaches.
struct ProbeReport {
  std::uint64_t round = 0;
  liveness::LinkReport links;

  static void fields(auto& self, auto&& visit) { visit(self.round, self.links); }
};
/// Rank 0 asks another rank of the node for the process of a silent one, by its rank.
struct Sight {
  int rank = 0;
  liveness::Trouble trouble;  ///< of its process

  static void fields(auto& self, auto&& visit) { visit(self.rank, self.trouble); }
};

}  // namespace lockstep::tcp
