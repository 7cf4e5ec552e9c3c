#include "lockstep/comm/worlds/meeting.hpp"

#include <fmt/core.h>

#include <optional>

#include "lockstep/comm/nodes.hpp"
#include "lockstep/device/idle.hpp"
#include "ports/mpi/factories.hpp"
#include "ports/mpi/mail.hpp"
#include "ports/mpi/rank_deadline.hpp"

namespace lockstep::mpi {
namespace {

enum Tag : int { arrival, release };
constexpr char agreed = 'y', refused = 'n';  // the first byte of rank 0's answer

/// Every rank sends its part to rank 0, which combines them in rank order and answers with the
/// result. The result goes down a binomial tree, because by then all ranks take part; a refusal
/// goes to all ranks directly.
class MpiControl final : public comm::MeetingControl {
 public:
  MpiControl(MPI_Comm comm, double deadline_s, RollCall& roll_call,
             const comm::ActivityTracker& of_rank)
      : MeetingControl(of_rank), mail_(comm), deadline_s_(deadline_s), roll_call_(roll_call) {
    must(MPI_Comm_rank(comm, &rank_));
    must(MPI_Comm_size(comm, &world_));
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }

 private:
  std::string meet(const std::string& mine, std::string_view phase,
                   const Combine& combine) override {
    const std::string result =
        rank_ == 0 ? agreed + combine(collect(mine, phase)) : arrive(mine, phase);
    std::vector<int> children;
    for (int step = 1; rank_ + step < world_ && (rank_ & step) == 0; step *= 2)
      children.push_back(rank_ + step);
    send(children, release, result, phase);
    return result.substr(1);
  }

  /// Rank 0: the parts of all ranks, in rank order.
  Parts collect(const std::string& mine, std::string_view phase) {
    Parts parts(static_cast<std::size_t>(world_));
    parts[0] = mine;
    std::string disorder;
    RankDeadline deadline(roll_call_, deadline_s_, std::string(phase));
    device::Idle idle;
    for (int here = 1; here < world_;) {
      const std::optional<Mail::Message> message = mail_.take(arrival);
      if (!message) {
        deadline.poll();
        idle();
        continue;
      }
      deadline.moved();
      ++here;
      const std::size_t end = message->text.find('\0');
      const std::string theirs = message->text.substr(0, end);
      if (theirs != phase && disorder.empty())
        disorder = fmt::format("rank {} is in the phase '{}' while rank 0 is in '{}'",
                               message->from, theirs, phase);
      parts[static_cast<std::size_t>(message->from)] = message->text.substr(end + 1);
    }
    // Only now, so that every rank hears it.
    if (!disorder.empty()) refuse(disorder);
    return parts;
  }

  /// The other ranks: rank 0's result.
  std::string arrive(const std::string& mine, std::string_view phase) {
    send({0}, arrival, std::string(phase) + '\0' + mine, phase);
    RankDeadline deadline(roll_call_, deadline_s_, std::string(phase));
    device::Idle idle;
    std::optional<Mail::Message> answer;
    for (; !(answer = mail_.take(release)); idle()) deadline.poll();
    deadline.moved();
    if (answer->text[0] == refused) throw Error(answer->text.substr(1));
    return answer->text;
  }

  [[noreturn]] void refuse(const std::string& why) {
    send(comm::all_but({0}, world_), release, refused + why, why);
    throw Error(why);
  }

  void send(const std::vector<int>& ranks, Tag tag, const std::string& text,
            std::string_view phase) {
    mail_.send(ranks, tag, text);
    RankDeadline deadline(roll_call_, deadline_s_, std::string(phase));
    for (device::Idle idle; !mail_.sent(); idle()) deadline.poll();
  }

  Mail mail_;
  double deadline_s_;
  RollCall& roll_call_;
  int rank_ = 0, world_ = 1;
};

}  // namespace

std::unique_ptr<comm::Control> make_mpi_control(MPI_Comm comm, double deadline_s,
                                                RollCall& roll_call,
                                                const comm::ActivityTracker& activity) {
  return std::make_unique<MpiControl>(comm, deadline_s, roll_call, activity);
}

}  // namespace lockstep::mpi
