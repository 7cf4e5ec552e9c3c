#include "ports/mpi/roll_call.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "lockstep/base/clock.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/device/idle.hpp"

namespace lockstep::mpi {
namespace {

enum RollCallTag : int { question, answer, finding };

// A rank that waits listens ten times a second. The rest of this time helps machines with more
// ranks than cores.
constexpr double time_to_answer_s = 2;

/// What a rank says about its wait: the phase, and for which ranks.
std::string answer_of(const Wait& wait) {
  return std::string(wait.phase) + '\0' +
         std::string(reinterpret_cast<const char*>(wait.awaited.data()),
                     wait.awaited.size() * sizeof(int));
}

std::string phase_in(const std::string& answer) { return answer.substr(0, answer.find('\0')); }

/// The ranks that `asker` waits for, those that they wait for, and so on, where the answers
/// tell; ascending.
std::vector<int> awaited_by(int asker, const std::map<int, std::string>& answers, int world) {
  std::vector<bool> seen(static_cast<std::size_t>(world), false);
  std::vector<int> found, open{asker};
  const auto add = [&](int rank) {
    if (seen[static_cast<std::size_t>(rank)]) return;
    seen[static_cast<std::size_t>(rank)] = true;
    found.push_back(rank);
    open.push_back(rank);
  };
  while (!open.empty() && found.size() < seen.size()) {
    const auto said = answers.find(open.back());
    open.pop_back();
    if (said == answers.end()) continue;
    const std::string& text = said->second;
    const std::size_t begin = text.find('\0') + 1;
    std::vector<int> ranks((text.size() - begin) / sizeof(int));
    std::memcpy(ranks.data(), text.data() + begin, ranks.size() * sizeof(int));
    if (ranks.empty()) ranks = comm::all_but({}, world);
    for (const int rank : ranks) add(rank);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

struct RollCall::Note {
  int from = 0;
  std::uint64_t sender_round = 0;    // when it was written
  std::uint64_t receiver_round = 0;  // the one it belongs to
  std::string text;
  std::uint64_t ending = 0;     // of a finding
  std::uint64_t waited_ms = 0;  // of an answer
};

RollCall::RollCall(MPI_Comm comm) : mail_(comm) {
  must(MPI_Comm_rank(comm, &rank_));
  must(MPI_Comm_size(comm, &world_));
}

void RollCall::listen(const Wait& wait) {
  while (const std::optional<Note> asked = take(question))
    send({asked->from}, answer,
         {rank_, round_, asked->sender_round, answer_of(wait), 0,
          static_cast<std::uint64_t>(1e3 * (now_s() - wait.began_s))});
  while (const std::optional<Note> heard = take(finding))
    if (heard->receiver_round == round_) end({heard->text, static_cast<Ending>(heard->ending)});
}

RollCall::Answers RollCall::ask(const Wait& wait, double deadline_s) {
  Answers said;
  said.nearer = blame_absent(wait.phase, deadline_s);
  if (said.nearer) return said;
  send(comm::all_but({rank_}, world_), question, {rank_, round_, 0, ""});
  std::map<int, std::string> answers{{rank_, answer_of(wait)}};
  std::vector<int> awaited, late;
  const double asked_s = now_s();
  Countdown left(time_to_answer_s);
  for (device::Idle idle;; idle()) {
    while (const std::optional<Note> note = take(answer)) {
      if (note->receiver_round != round_) continue;
      answers[note->from] = note->text;
      said.rounds[note->from] = note->sender_round;
      const bool just_come = 1e-3 * static_cast<double>(note->waited_ms) < now_s() - asked_s;
      // A rank in another phase may have finished this wait.
      if (just_come && phase_in(note->text) == wait.phase) late.push_back(note->from);
    }
    listen(wait);
    awaited = awaited_by(rank_, answers, world_);
    const bool complete = std::all_of(awaited.begin(), awaited.end(),
                                      [&](int rank) { return answers.contains(rank); });
    if (complete || left.over()) break;
  }
  for (const int rank : awaited)
    if (answers.contains(rank)) said.phases[rank] = phase_in(answers[rank]);
  std::sort(late.begin(), late.end());
  std::set_intersection(awaited.begin(), awaited.end(), late.begin(), late.end(),
                        std::back_inserter(said.late));
  if (said.phases.size() < awaited.size())
    tell(said, {describe_missing(wait.phase, deadline_s, awaited, said.phases)});
  return said;
}

void RollCall::give_up(const Wait& wait, double deadline_s, const Answers& answers) {
  std::vector<int> all;
  for (const auto& [rank, phase] : answers.phases) all.push_back(rank);
  tell(answers, {describe_missing(wait.phase, deadline_s, all, answers.phases), Ending::network});
}

void RollCall::warn_of_late(const Wait& wait, double deadline_s, const Answers& answers) const {
  comm::warn_of_late(wait.phase, answers.late, now_s() - wait.began_s, deadline_s, rank_);
}

void RollCall::tell(const Answers& answers, const comm::WaitFinding& found) {
  for (const auto& [rank, round] : answers.rounds)
    send({rank}, finding,
         {rank_, round_, round, found.text, static_cast<std::uint64_t>(found.ending)});
  end(found);
}

bool RollCall::blame_absent(std::string_view phase, double deadline_s) {
  std::vector<int> here;
  const auto absence = find_absence_ ? find_absence_(deadline_s) : std::nullopt;
  if (absence) here = comm::all_but(absence->ranks, world_);
  if (here.empty() || here.size() == static_cast<std::size_t>(world_))
    return absence && absence->nearer;
  if (std::find(here.begin(), here.end(), rank_) == here.end()) return false;
  std::map<int, std::string> phases;
  for (const int rank : here) phases[rank] = phase;
  const comm::WaitFinding found =
      absence->finding(describe_missing(phase, deadline_s, comm::all_but({}, world_), phases));
  std::erase(here, rank_);
  // Ranks that have heard as many findings as this one end at once; the others ask on their own.
  send(here, finding,
       {rank_, round_, round_, found.text, static_cast<std::uint64_t>(found.ending)});
  end(found);
}

void RollCall::end(const comm::WaitFinding& found) {
  ++round_;
  comm::end_wait(found);
}

void RollCall::send(const std::vector<int>& ranks, int tag, const Note& note) {
  const std::uint64_t rounds[] = {note.sender_round, note.receiver_round, note.ending,
                                  note.waited_ms};
  mail_.send(ranks, tag,
             std::string(reinterpret_cast<const char*>(rounds), sizeof rounds) + note.text);
}

std::optional<RollCall::Note> RollCall::take(int tag) {
  const std::optional<Mail::Message> message = mail_.take(tag);
  if (!message) return std::nullopt;
  std::uint64_t rounds[4];
  std::memcpy(rounds, message->text.data(), sizeof rounds);
  return Note{message->from, rounds[0], rounds[1], message->text.substr(sizeof rounds),
              rounds[2],     rounds[3]};
}

std::string describe_missing(std::string_view phase, double deadline_s,
                             const std::vector<int>& awaited,
                             const std::map<int, std::string>& phases) {
  std::vector<int> missing;
  for (const int rank : awaited)
    if (!phases.contains(rank)) missing.push_back(rank);
  std::map<std::string, std::vector<int>> elsewhere;
  for (const auto& [rank, theirs] : phases)
    if (theirs != phase) elsewhere[theirs].push_back(rank);
  std::string text =
      missing.empty()
          ? fmt::format("{}: nothing came for {} s, though all ranks answer", phase, deadline_s)
          : fmt::format("{}: {} did not arrive within {} s", phase, comm::rank_list(missing),
                        deadline_s);
  for (const auto& [theirs, ranks] : elsewhere)
    text += fmt::format("; {} {} in '{}'", comm::rank_list(ranks),
                        ranks.size() == 1 ? "waits" : "wait", theirs);
  return text;
}

}  // namespace lockstep::mpi
