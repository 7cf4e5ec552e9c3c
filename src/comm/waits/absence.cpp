#include "lockstep/comm/waits/absence.hpp"

#include <fmt/core.h>

#include "lockstep/base/log.hpp"
#include "lockstep/comm/nodes.hpp"

namespace lockstep::comm {

void end_wait(const WaitFinding& found) {
  if (found.outside()) throw OutsideFault(found.text, found.ending);
  if (found.gone) throw MissingRanks(found.text);
  throw Error(found.text, found.ending);
}

WaitFinding Absence::finding(const std::string& what) const {
  WaitFinding found{what, ending};
  if (found.outside()) found.text += "; " + text;
  return found;
}

void warn_of_late(std::string_view phase, const std::vector<int>& late, double waited_s,
                  double deadline_s, int self) {
  int first = 0;
  for (const int rank : late) first += rank == first ? 1 : 0;
  if (self != first) return;
  log::warn(fmt::format("{}: {} came after {:.0f} s, just after the deadline of {:g} s", phase,
                        late.empty() ? "the others" : rank_list(late), waited_s, deadline_s));
}

}  // namespace lockstep::comm
