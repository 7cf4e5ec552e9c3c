#include "lockstep/train/pipeline/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "lockstep/base/error.hpp"

namespace lockstep::train {
namespace {

using enum StagePiece::Do;

/// Forwards before the first backward.
std::size_t ahead_of(PipelineOrder order, std::size_t stage, const PipelineShape& shape) {
  if (order == PipelineOrder::gpipe && shape.stages > 1) return shape.micro_batches;
  return std::min(shape.micro_batches, shape.stages - 1 - stage);
}

/// How many more run backward before a micro-batch's weight gradients.
std::size_t delay_of(PipelineOrder order, std::size_t stage) {
  return order == PipelineOrder::zb_h1 ? stage : 0;
}

const char* name_of(StagePiece::Do what) {
  switch (what) {
    case take_values:
      return "take_values";
    case forward:
      return "forward";
    case give_values:
      return "give_values";
    case take_gradients:
      return "take_gradients";
    case backward:
      return "backward";
    case give_gradients:
      return "give_gradients";
    case weight_gradients:
      return "weight_gradients";
  }
  throw Error("a piece without a name");
}

/// A step as it is played: how far each stage is, and what each slot holds.
class Play {
 public:
  Play(PipelineOrder order, const std::vector<std::vector<StagePiece>>& stages,
       std::size_t micro_batches)
      : stages_(stages), micro_batches_(micro_batches) {
    for (std::size_t s = 0; s < stages.size(); ++s)
      at_.emplace_back(micro_batches, late_in_stage(order, s, {stages.size(), micro_batches}));
    next_.resize(stages.size());
  }

  std::string fault() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < stages_.size(); ++s)
        while (fault_.empty() && advance(s)) moved = true;
      if (!fault_.empty()) return fault_;
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (const StagePiece* piece = current(s)) return say(s, *piece, "waits for ever");
      for (const auto& left : at_[s].messages)
        if (!left.empty()) return say(s, left.front(), "is never taken");
      for (std::size_t m = 0; m < micro_batches_; ++m)
        if (at_[s].of[m] != backwards_end(s))
          return fmt::format("stage {} ends without all of micro-batch {}", s, m);
    }
    return "";
  }

 private:
  /// How far the micro-batches of one stage are, in the order in which one passes a stage.
  struct Stage {
    Stage(std::size_t micro_batches, std::size_t late_)
        : of(micro_batches, 0), slot(micro_batches), late(late_) {}
    std::vector<int> of;  ///< 0: nothing; i: the i-th of the pieces that a stage has is done
    std::vector<std::optional<std::size_t>> slot;
    std::size_t late, backwards = 0, weights = 0;  ///< the last two: how many have run
    /// At the boundary to the next stage: gradients that come up, values that go down.
    std::deque<StagePiece> messages[2];
  };

  const StagePiece* current(std::size_t s) const {
    return next_[s] < stages_[s].size() ? &stages_[s][next_[s]] : nullptr;
  }
  static std::string say(std::size_t s, const StagePiece& piece, const char* what) {
    return fmt::format("stage {}: {} of micro-batch {} {}", s, name_of(piece.what), piece.micro,
                       what);
  }
  bool is_first(std::size_t s) const { return s == 0; }
  bool is_last(std::size_t s) const { return s + 1 == stages_.size(); }
  int backwards_end(std::size_t s) const { return static_cast<int>(order(s).size()); }
  /// The pieces of one micro-batch in this stage.
  std::vector<StagePiece::Do> order(std::size_t s) const {
    std::vector<StagePiece::Do> all;
    if (!is_first(s)) all.push_back(take_values);
    all.push_back(forward);
    if (!is_last(s)) all.insert(all.end(), {give_values, take_gradients});
    all.push_back(backward);
    if (!is_first(s)) all.push_back(give_gradients);
    if (at_[s].late > 0) all.push_back(weight_gradients);
    return all;
  }

  /// Does the stage's next piece, unless that waits for a message that was not given yet.
  bool advance(std::size_t s) {
    const StagePiece* piece = current(s);
    if (piece == nullptr) return false;
    if (piece->what == forward) return writes(s, *piece, true);
    if (piece->what == backward) return writes(s, *piece, false);
    if (piece->what == weight_gradients) return does(s, *piece);
    const bool down = piece->what == take_values || piece->what == give_values;
    const bool gives = piece->what == give_values || piece->what == give_gradients;
    const bool to_next = down == gives;  // the other side is the next stage
    if (to_next ? is_last(s) : is_first(s)) return refuse(s, *piece, "has no other side");
    std::deque<StagePiece>& on_its_way = at_[to_next ? s : s - 1].messages[down];
    if (gives) {
      on_its_way.push_back(*piece);
      return does(s, *piece);
    }
    if (on_its_way.empty()) return false;
    if (on_its_way.front().micro != piece->micro)
      return refuse(s, *piece, "meets another micro-batch");
    on_its_way.pop_front();
    return does(s, *piece);
  }

  /// A message is in the memory of its giver's slot until it is taken: what writes there waits.
  bool writes(std::size_t s, const StagePiece& piece, bool values) {
    if (values ? !is_last(s) : !is_first(s))
      for (const StagePiece& other : at_[values ? s : s - 1].messages[values])
        if (other.slot == piece.slot) return false;
    return does(s, piece);
  }

  bool does(std::size_t s, const StagePiece& piece) {
    Stage& stage = at_[s];
    if (piece.micro >= micro_batches_) return refuse(s, piece, "is not of this step");
    int& done = stage.of[piece.micro];
    const std::vector<StagePiece::Do> all = order(s);
    if (done >= static_cast<int>(all.size()) || all[static_cast<std::size_t>(done)] != piece.what)
      return refuse(s, piece, "is out of order");
    if (done == 0) {
      if (std::ranges::find(stage.slot, piece.slot) != stage.slot.end())
        return refuse(s, piece, "fills a slot that is full");
      stage.slot[piece.micro] = piece.slot;
    }
    if (stage.slot[piece.micro] != piece.slot) return refuse(s, piece, "has another slot");
    if ((piece.what == backward && stage.backwards++ != piece.micro) ||
        (piece.what == weight_gradients && stage.weights++ != piece.micro))
      return refuse(s, piece, "comes before that of an earlier one");
    if (stage.late > 0 && stage.backwards > stage.weights + stage.late)
      return refuse(s, piece, "leaves too many weight gradients");
    ++done;
    if (done == static_cast<int>(all.size())) stage.slot[piece.micro].reset();
    ++next_[s];
    return true;
  }

  bool refuse(std::size_t s, const StagePiece& piece, const char* why) {
    fault_ = say(s, piece, why);
    return false;
  }

  const std::vector<std::vector<StagePiece>>& stages_;
  const std::size_t micro_batches_;
  std::vector<Stage> at_;
  std::vector<std::size_t> next_;
  std::string fault_;
};

}  // namespace

std::size_t slots_of_stage(PipelineOrder order, std::size_t stage, const PipelineShape& shape) {
  return std::min(shape.micro_batches, ahead_of(order, stage, shape) + 1 + delay_of(order, stage));
}

std::size_t late_in_stage(PipelineOrder order, std::size_t stage, const PipelineShape& shape) {
  const std::size_t delay = delay_of(order, stage);
  return delay == 0 ? 0 : std::min(shape.micro_batches, delay + 1);
}

std::vector<StagePiece> schedule_of_stage(PipelineOrder order, std::size_t stage,
                                          const PipelineShape& shape) {
  check(stage < shape.stages && shape.micro_batches > 0, "a stage of a pipeline has micro-batches");
  const std::size_t ahead = ahead_of(order, stage, shape),
                    slots = slots_of_stage(order, stage, shape), delay = delay_of(order, stage);
  std::vector<StagePiece> pieces;
  const auto put = [&](StagePiece::Do what, std::size_t micro, bool wanted = true) {
    if (wanted) pieces.push_back({what, micro, micro % slots});
  };
  const bool first = stage == 0, last = stage + 1 == shape.stages;
  const auto put_forward = [&](std::size_t micro) {
    put(take_values, micro, !first);
    put(forward, micro);
    put(give_values, micro, !last);
  };
  for (std::size_t i = 0; i < ahead; ++i) put_forward(i);
  for (std::size_t i = 0; i < shape.micro_batches; ++i) {
    if (ahead + i < shape.micro_batches) put_forward(ahead + i);
    put(take_gradients, i, !last);
    put(backward, i);
    put(give_gradients, i, !first);
    if (delay > 0 && i >= delay) put(weight_gradients, i - delay);
  }
  if (delay > 0)
    for (std::size_t i = shape.micro_batches - std::min(delay, shape.micro_batches);
         i < shape.micro_batches; ++i)
      put(weight_gradients, i);
  return pieces;
}

std::string fault_in(PipelineOrder order, const std::vector<std::vector<StagePiece>>& stages,
                     std::size_t micro_batches) {
  return Play(order, stages, micro_batches).fault();
}

}  // namespace lockstep::train
