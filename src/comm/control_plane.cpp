#include "lockstep/comm/control_plane.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/waits/roll_call.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/comm/nodes.hpp"

namespace lockstep::comm {
namespace {

/// Every rank sends its part to rank 0, which combines them in rank order and answers with the
/// result.
class MeetingControl final : public Control {
 public:
  MeetingControl(Fabric& fabric, RollCall& roll_call, double deadline_s,
                 const ActivityTracker& of_rank)
      : Control(of_rank), fabric_(fabric), roll_call_(roll_call), deadline_s_(deadline_s) {}
  int rank() const override { return fabric_.rank(); }
  int world() const override { return fabric_.world(); }

 private:
  std::string meet(const std::string& mine, std::string_view phase,
                   const Combine& combine) override {
    if (rank() != 0) return attend(mine, std::string(phase));
    const std::string result = combine(collect(mine, std::string(phase)));
    answer(result_mark + result, phase);
    return result;
  }

  RollCall::Deadline deadline(const std::string& phase, Awaited awaited) {
    return {roll_call_, deadline_s_, phase, std::move(awaited)};
  }

  /// Rank 0: the parts of all ranks, in rank order.
  Parts collect(const std::string& mine, const std::string& phase) {
    Parts parts(static_cast<std::size_t>(world()));
    parts[0] = mine;
    std::vector<int> here{0};
    std::string disorder;
    auto wait = deadline(phase, [&] { return all_but(here, world()); });
    while (here.size() < parts.size()) {
      wait.poll();  // first, because it may let the letter in
      const auto letter = fabric_.take(LetterKind::part);
      if (!letter) {
        fabric_.wait();
        continue;
      }
      wait.moved();
      here.insert(std::ranges::upper_bound(here, letter->from), letter->from);
      const std::size_t end = letter->text.find('\0');
      const std::string theirs = letter->text.substr(0, end);
      if (theirs != phase && disorder.empty())
        disorder = fmt::format("rank {} is in the phase '{}' while rank 0 is in '{}'", letter->from,
                               theirs, phase);
      parts[static_cast<std::size_t>(letter->from)] = letter->text.substr(end + 1);
    }
    if (disorder.empty()) return parts;
    answer(refusal_mark + disorder, phase);  // only now, so that every rank hears it
    throw Error(disorder);
  }

  /// Rank 0: to all others.
  void answer(std::string text, std::string_view phase) {
    post(all_but({0}, world()), LetterKind::result, std::move(text), phase);
    for (Countdown left(deadline_s_);; fabric_.wait()) {
      const std::vector<int> deaf = fabric_.unsent();
      if (deaf.empty()) return;
      if (left.over())
        throw Error(fmt::format("{}: {} stopped listening", phase, rank_list(deaf)), Ending::stuck);
    }
  }

  /// The other ranks: rank 0's result.
  std::string attend(const std::string& mine, const std::string& phase) {
    post({0}, LetterKind::part, phase + '\0' + mine, phase);
    auto wait = deadline(phase, [] { return std::vector<int>{0}; });
    for (;; fabric_.wait()) {
      wait.poll();
      if (const auto letter = fabric_.take(LetterKind::result)) {
        wait.moved();
        std::string text = letter->text.substr(1);
        if (letter->text[0] == missing_mark) throw MissingRanks(text, true);
        if (letter->text[0] == refusal_mark) throw Error(text);
        return text;
      }
    }
  }

  void post(const std::vector<int>& ranks, LetterKind kind, std::string text,
            std::string_view phase) {
    if (text.size() > letter_bytes)
      throw Error(fmt::format("{}: a message of {} MiB between ranks is larger than {} MiB", phase,
                              text.size() >> 20, letter_bytes >> 20));
    fabric_.send(ranks, kind, std::move(text));
  }

  Fabric& fabric_;
  RollCall& roll_call_;
  const double deadline_s_;
};

}  // namespace

struct ControlPlane::Impl {
  std::shared_ptr<Fabric> fabric;
  std::optional<RollCall> roll_call;
  std::unique_ptr<Control> control;
};

ControlPlane::ControlPlane(const ActivityTracker& activity) : impl_(std::make_unique<Impl>()) {
  impl_->control = std::make_unique<LoneControl>(activity);
}

ControlPlane::ControlPlane(std::shared_ptr<Fabric> fabric, double deadline_s,
                           const ActivityTracker& activity)
    : impl_(std::make_unique<Impl>()) {
  impl_->fabric = std::move(fabric);
  impl_->roll_call.emplace(*impl_->fabric);
  impl_->control =
      std::make_unique<MeetingControl>(*impl_->fabric, *impl_->roll_call, deadline_s, activity);
}

ControlPlane::~ControlPlane() = default;

Control& ControlPlane::control() { return *impl_->control; }

void ControlPlane::introduce() {
  if (impl_->fabric) impl_->fabric->introduce(*impl_->control);
}

void ControlPlane::ask_first(FindAbsence find_absence) {
  if (impl_->roll_call) impl_->roll_call->find_absence = std::move(find_absence);
}

FindAbsence ControlPlane::find_absence() const {
  return impl_->roll_call ? impl_->roll_call->find_absence : FindAbsence();
}

std::unique_ptr<Communicator> ControlPlane::connect(double deadline_s, Fabric* tensors) {
  Control& control = *impl_->control;
  if (!impl_->fabric) return make_direct_communicator(nullptr, {}, 0, 1, control.activity);
  const MakeDeadline make = [roll_call = &*impl_->roll_call, deadline_s](std::string phase,
                                                                         Awaited awaited) {
    return std::make_unique<RollCall::Deadline>(*roll_call, deadline_s, std::move(phase),
                                                std::move(awaited));
  };
  const std::vector<int> others = all_but({control.rank()}, control.world());
  const auto deadline = make("making a communicator", [&] { return others; });
  return make_direct_communicator((tensors ? *tensors : *impl_->fabric).make_transport(*deadline),
                                  make, control.rank(), control.world(), control.activity);
}

}  // namespace lockstep::comm
