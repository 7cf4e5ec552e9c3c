#include "lockstep/comm/meeting.hpp"

#include <fmt/core.h>

#include <optional>

#include "lockstep/comm/rank_list.hpp"
#include "lockstep/device/idle.hpp"
#include "mpi/factories.hpp"
#include "mpi/mail.hpp"
#include "mpi/patience.hpp"

namespace lockstep::comm {
namespace {

enum Tag : int { arrival, release };
constexpr char agreed = 'y', refused = 'n';  // a release's first byte

/// Every rank sends its part to rank 0, which combines them in rank order and releases everybody
/// with the result. The result goes down a binomial tree, because by then all are there; a refusal
/// goes to all directly.
class MpiControl final : public MeetingControl {
 public:
  MpiControl(MPI_Comm comm, double deadline_s, RollCall& roll_call)
      : mail_(comm), deadline_s_(deadline_s), roll_call_(roll_call) {
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

  /// Rank 0: everybody's part, in rank order.
  Parts collect(const std::string& mine, std::string_view phase) {
    Parts parts(static_cast<std::size_t>(world_));
    parts[0] = mine;
    std::string disorder;
    Patience patience(roll_call_, deadline_s_, phase);
    Idle idle;
    for (int here = 1; here < world_;) {
      const std::optional<Mail::Letter> letter = mail_.take(arrival);
      if (!letter) {
        patience.strain();
        idle();
        continue;
      }
      ++here;
      const std::size_t end = letter->text.find('\0');
      const std::string theirs = letter->text.substr(0, end);
      if (theirs != phase && disorder.empty())
        disorder = fmt::format("rank {} is in the phase '{}' while rank 0 is in '{}'", letter->from,
                               theirs, phase);
      parts[static_cast<std::size_t>(letter->from)] = letter->text.substr(end + 1);
    }
    // Said only now, so that everybody hears it.
    if (!disorder.empty()) refuse(disorder);
    return parts;
  }

  /// The other ranks: what rank 0 made of all parts.
  std::string arrive(const std::string& mine, std::string_view phase) {
    send({0}, arrival, std::string(phase) + '\0' + mine, phase);
    Patience patience(roll_call_, deadline_s_, phase);
    Idle idle;
    std::optional<Mail::Letter> answer;
    for (; !(answer = mail_.take(release)); idle()) patience.strain();
    if (answer->text[0] == refused) throw Error(answer->text.substr(1));
    return answer->text;
  }

  [[noreturn]] void refuse(const std::string& why) {
    send(all_but({0}, world_), release, refused + why, why);
    throw Error(why);
  }

  void send(const std::vector<int>& ranks, Tag tag, const std::string& text,
            std::string_view phase) {
    mail_.send(ranks, tag, text);
    Patience patience(roll_call_, deadline_s_, phase);
    for (Idle idle; !mail_.sent(); idle()) patience.strain();
  }

  Mail mail_;
  double deadline_s_;
  RollCall& roll_call_;
  int rank_ = 0, world_ = 1;
};

}  // namespace

std::unique_ptr<Control> make_mpi_control(MPI_Comm comm, double deadline_s, RollCall& roll_call) {
  return std::make_unique<MpiControl>(comm, deadline_s, roll_call);
}

}  // namespace lockstep::comm
