#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/waits/absence.hpp"
#include "lockstep/liveness/heartbeat.hpp"
#include "lockstep/liveness/links.hpp"
#include "lockstep/liveness/process_state.hpp"

namespace lockstep::tcp {

/// Stands for the job in a heartbeat's hello.
constexpr const char* heartbeat_purpose = "heartbeat";
constexpr std::size_t heartbeat_message_limit = 1 << 16;

/// The messages. Their readers throw Error when one is cut short or has bytes too many.
constexpr char beat_mark = 'b', goodbye_mark = 'g', failure_mark = 'f', end_mark = 'e',
               question_mark = 'q', finding_mark = 'a', probe_mark = 'p', report_mark = 'r',
               look_mark = 'l', sight_mark = 's';
/// A message's mark; 0 when it is empty.
char mark_of(std::string_view message);
/// A beat says what its sender is doing, and for how long its heartbeat got no core (see
/// liveness::StarvationWatch) since the last beat.
struct Beat {
  comm::Activity activity;
  double starved_s = 0;

  static void fields(auto& self, auto&& visit) { visit(self.activity, self.starved_s); }
};
std::string make_beat(const comm::Activity& activity, double starved_s = 0);
Beat read_beat(std::string_view message);
/// A failure, or rank 0's order to end: the status to end with, and why.
std::string make_end(char mark, liveness::End end);
liveness::End read_end(std::string_view message);
/// A rank asks rank 0 which ranks keep it waiting.
struct AbsenceQuestion {
  std::uint64_t number = 0;  ///< counted by the rank that asks; the finding repeats it
  double waited_s = 0;

  static void fields(auto& self, auto&& visit) { visit(self.number, self.waited_s); }
};
std::string make_question(const AbsenceQuestion& question);
AbsenceQuestion read_question(std::string_view message);
struct AbsenceFinding {
  std::uint64_t number = 0;
  std::optional<comm::Absence> absence;

  static void fields(auto& self, auto&& visit) { visit(self.number, self.absence); }
};
std::string make_finding(AbsenceFinding finding);
AbsenceFinding read_finding(std::string_view message);
/// Rank 0 asks the first rank of each node which other nodes it reaches.
std::string make_probe(std::uint64_t round);
std::uint64_t read_probe(std::string_view message);
struct ProbeReport {
  std::uint64_t round = 0;
  liveness::LinkReport links;

  static void fields(auto& self, auto&& visit) { visit(self.round, self.links); }
};
std::string make_report(const ProbeReport& report);
ProbeReport read_report(std::string_view message);
/// Rank 0 asks another rank of the node for the process of a silent one.
std::string make_look(int rank);
int read_look(std::string_view message);
struct Sight {
  int rank = 0;
  liveness::Trouble trouble;  ///< of its process

  static void fields(auto& self, auto&& visit) { visit(self.rank, self.trouble); }
};
std::string make_sight(const Sight& sight);
Sight read_sight(std::string_view message);

}  // namespace lockstep::tcp
