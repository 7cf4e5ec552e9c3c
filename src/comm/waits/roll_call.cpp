#include "comm/waits/roll_call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/log.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::comm {
namespace {

constexpr double look_every_s = 0.1;  // a rank that waits listens ten times a second
constexpr double last_words_s = 1;
// After a deadline, movement and answers may still come: a late rank may have come just then, and
// answers take a while on machines with more ranks than cores.
constexpr double look_longer_s = 2;
// The heartbeats see within three seconds that another rank has gone, know more, and end this
// process.
constexpr double time_for_heartbeat_s = 10;

constexpr std::string_view of_group = " of group ";

std::string_view operation_of(std::string_view phase) {
  return phase.substr(0, phase.find(of_group));
}

std::string to_text(const std::vector<int>& ranks, const char* one, const char* several) {
  return fmt::format("{} {}", rank_list(ranks), ranks.size() == 1 ? one : several);
}

[[noreturn]] void end_wait(const WaitFinding& found) {
  if (found.outside()) throw OutsideFault(found.text, found.ending);
  if (found.gone) throw MissingRanks(found.text);
  throw Error(found.text, found.ending);
}

/// That the ranks `late` (ascending; empty: not known) came just after the deadline, after a wait
/// of `waited_s` on rank `self`. Of the ranks that were on time, the first one speaks.
void warn_of_late(std::string_view phase, const std::vector<int>& late, double waited_s,
                  double deadline_s, int self) {
  int first = 0;
  for (const int rank : late) first += rank == first ? 1 : 0;
  if (self != first) return;
  log::warn(fmt::format("{}: {} came after {:.0f} s, just after the deadline of {:g} s", phase,
                        late.empty() ? "the others" : rank_list(late), waited_s, deadline_s));
}

}  // namespace

std::string phase_in(std::string_view group, std::string_view operation) {
  return fmt::format("{}{}{}", operation, group.empty() ? "" : of_group, group);
}

WaitFinding Absence::finding(const std::string& what) const {
  WaitFinding found{what, ending};
  if (found.outside()) found.text += "; " + text;
  return found;
}

RollCall::Deadline::Deadline(RollCall& roll_call, double deadline_s, std::string phase,
                             Awaited awaited)
    : roll_call_(roll_call),
      deadline_s_(deadline_s),
      phase_(std::move(phase)),
      awaited_(std::move(awaited)),
      look_s_(began_s_ + look_every_s),
      left_(deadline_s) {}

RollCall::Deadline::~Deadline() {
  roll_call_.waits_.erase(this);
  roll_call_.questions_.erase(question_);
}

void RollCall::Deadline::renew() {
  moved();
  roll_call_.waits_.erase(this);
  began_s_ = now_s();
  look_s_ = began_s_ + look_every_s;
  left_ = Countdown(deadline_s_);
}

void RollCall::Deadline::moved() {
  const auto asking = roll_call_.questions_.extract(std::exchange(question_, 0));
  if (!asking) return;
  std::vector<int> late;
  // They came after they were asked. A rank in another phase may have finished this wait.
  for (const auto& [rank, answer] : asking.mapped().answers)
    if (answer.waited_s < 0 && answer.phase == phase_) late.push_back(rank);
  warn_of_late(phase_, late, now_s() - began_s_, deadline_s_, roll_call_.fabric_.rank());
  left_ = Countdown(look_longer_s);
}

void RollCall::Deadline::poll() {
  const double now = now_s();
  const bool due = now >= look_s_;
  if (!due && question_ == 0 && !roll_call_.fabric_.connecting()) return;
  if (due) {
    roll_call_.waits_[this] = {phase_, awaited_(), began_s_};
    look_s_ = now + look_every_s;
  }
  roll_call_.listen();
  if (question_ != 0) judge_answers(roll_call_.questions_.at(question_));
  if (!due) return;
  const std::vector<int>& awaited = roll_call_.waits_[this].awaited;
  look_for_gone(awaited);
  if (!left_.over() || question_ != 0 || awaited.empty()) return;
  if (roll_call_.blame_absent(phase_, deadline_s_)) {
    left_ = Countdown(deadline_s_);
    return;
  }
  question_ = ++roll_call_.last_question_;
  roll_call_.questions_.emplace(question_, Asking{.left = Countdown(look_longer_s)});
  roll_call_.ask(question_, awaited);
}

void RollCall::Deadline::look_for_gone(const std::vector<int>& awaited) {
  std::vector<int> gone = awaited;
  std::erase_if(gone, [this](int rank) { return !roll_call_.fabric_.gone(rank); });
  if (gone.empty()) return;
  if (!first_gone_s_) first_gone_s_ = now_s();
  const double patience_s = roll_call_.find_absence ? time_for_heartbeat_s : 0;
  if (now_s() - *first_gone_s_ >= patience_s) roll_call_.end_without(phase_, gone);
}

/// Where all have answered and nothing has come since, it is the network's fault.
void RollCall::Deadline::judge_answers(Asking& asking) {
  if (!asking.left.over()) return;
  std::map<int, std::string> phases;
  for (const auto& [rank, answer] : asking.answers) phases[rank] = answer.phase;
  const bool complete = phases.size() == asking.asked.size();
  roll_call_.end({}, asking.answers,
                 {describe_missing(phase_, deadline_s_, asking.asked, phases),
                  complete ? Ending::network : Ending::stuck});
}

void RollCall::listen() {
  while (const auto asked = fabric_.take(LetterKind::question)) {
    Answer answer{read_record<std::uint64_t>(asked->text), round_, {}, {}, 0};
    for (const auto& [owner, wait] : waits_) {
      const double waited_s = now_s() - wait.began_s;
      if (waited_s >= answer.waited_s) answer.phase = wait.phase;
      answer.waited_s = std::max(answer.waited_s, waited_s);
      answer.awaited.insert(answer.awaited.end(), wait.awaited.begin(), wait.awaited.end());
    }
    if (!waits_.empty()) fabric_.send({asked->from}, LetterKind::answer, write_record(answer));
  }
  while (const auto letter = fabric_.take(LetterKind::answer)) {
    auto answer = read_record<Answer>(letter->text);
    const auto asking = questions_.find(answer.question);
    if (asking == questions_.end()) continue;
    answer.waited_s -= now_s() - asking->second.since_s;
    ask(answer.question, answer.awaited);
    asking->second.answers[letter->from] = std::move(answer);
    asking->second.left = Countdown(look_longer_s);
  }
  while (const auto heard = fabric_.take(LetterKind::finding)) {
    const auto told = read_record<Told>(heard->text);
    if (told.round != round_) continue;
    ++round_;
    end_wait(told.found);
  }
}

void RollCall::ask(std::uint64_t question, const std::vector<int>& ranks) {
  std::vector<int>& asked = questions_.at(question).asked;
  for (const int rank : ranks) {
    const auto at = std::ranges::lower_bound(asked, rank);
    if (rank == fabric_.rank() || (at != asked.end() && *at == rank)) continue;
    asked.insert(at, rank);
    fabric_.send({rank}, LetterKind::question, write_record(question));
  }
}

bool RollCall::blame_absent(const std::string& phase, double deadline_s) {
  const auto absence = find_absence ? find_absence(deadline_s) : std::nullopt;
  if (!absence || absence->ranks.empty()) return absence && absence->nearer;
  if (std::ranges::count(absence->ranks, fabric_.rank()) > 0) return false;
  end(absence->ranks, {},
      absence->finding(describe_missing(phase, deadline_s, absence->ranks, {})));
}

/// A heartbeat takes other ways and connects again, so it may know that a rank is alive.
void RollCall::end_without(const std::string& phase, const std::vector<int>& gone) {
  const auto absence = find_absence ? find_absence(0) : std::nullopt;
  const bool alive = absence && std::ranges::none_of(gone, [&](int rank) {
                       return std::ranges::count(absence->ranks, rank) > 0;
                     });
  if (!alive)
    end(gone, {},
        {fmt::format("{}: {}{}", phase, to_text(gone, "has gone", "have gone"),
                     absence ? "; " + absence->text : ""),
         Ending::lost_rank, true});
  end(gone, {},
      {fmt::format("{}: the connection between {} and {}, where {} is alive, broke: does the "
                   "network between these nodes work?",
                   phase, fabric_.host_of(fabric_.rank()), fabric_.host_of(gone.front()),
                   rank_list({gone.front()})),
       Ending::network});
}

void RollCall::end(const std::vector<int>& absent, const std::map<int, Answer>& answers,
                   const WaitFinding& found) {
  std::vector<int> told = all_but(absent, fabric_.world());
  std::erase_if(told,
                [this](int rank) { return rank == fabric_.rank() || !fabric_.reaches(rank); });
  for (const int rank : told) {
    // One that was not asked may have heard as many findings as this rank; else it asks.
    const auto answer = answers.find(rank);
    const Told finding{answer == answers.end() ? round_ : answer->second.round, found};
    fabric_.send({rank}, LetterKind::finding, write_record(finding));
  }
  ++round_;
  const auto leaving = [&] {
    return std::ranges::any_of(fabric_.unsent(),
                               [&](int rank) { return std::ranges::binary_search(told, rank); });
  };
  for (Countdown left(last_words_s); leaving() && !left.over();) fabric_.wait();
  end_wait(found);
}

std::string describe_missing(std::string_view phase, double deadline_s,
                             const std::vector<int>& awaited,
                             const std::map<int, std::string>& phases) {
  std::vector<int> missing;
  for (const int rank : awaited)
    if (!phases.contains(rank)) missing.push_back(rank);
  // Whom a missing rank keeps waiting in another group of the same operation is not elsewhere.
  const auto same = [&](std::string_view theirs) {
    return missing.empty() ? theirs == phase : operation_of(theirs) == operation_of(phase);
  };
  std::map<std::string, std::vector<int>> elsewhere;
  for (const auto& [rank, theirs] : phases)
    if (!same(theirs)) elsewhere[theirs].push_back(rank);
  std::string text =
      missing.empty()
          ? fmt::format("{}: nothing came for {} s, though all ranks answer", phase, deadline_s)
          : fmt::format("{}: {} did not arrive within {} s", phase, rank_list(missing), deadline_s);
  for (const auto& [theirs, ranks] : elsewhere)
    text += fmt::format("; {} in '{}'", to_text(ranks, "waits", "wait"), theirs);
  return text;
}

}  // namespace lockstep::comm
