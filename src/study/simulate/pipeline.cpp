#include "study/simulate/pipeline.hpp"

#include <algorithm>
#include <optional>

#include "lockstep/base/error.hpp"

namespace lockstep::study {
namespace {

using enum train::StagePiece::Do;
using train::StagePiece;

/// The messages of one boundary in one direction, by micro-batch.
struct Way {
  ReduceCost cost;
  std::vector<std::optional<double>> given_ms, expected_ms, there_ms;
  double free_ms = 0;

  /// When the message is there; nothing while that is open.
  std::optional<double> there(std::size_t micro) {
    if (there_ms[micro]) return there_ms[micro];
    if (!given_ms[micro] || !expected_ms[micro] || (micro > 0 && !there(micro - 1)))
      return std::nullopt;
    free_ms = std::max({free_ms, *given_ms[micro], *expected_ms[micro]}) + 1e3 * cost.busy_s;
    return there_ms[micro] = free_ms + 1e3 * cost.delay_s;
  }
};

class PipelinePlay {
 public:
  explicit PipelinePlay(const PipelinePaces& spec) : spec_(spec) {
    const train::PipelineShape shape{spec.stages.size(), spec.micro_batches};
    check(spec.boundaries.size() + 1 == shape.stages, "a boundary lies between two stages");
    const std::vector<std::optional<double>> open(spec.micro_batches);
    for (const BoundaryCost& cost : spec.boundaries) {
      down_.push_back({cost.values, open, open, open});
      up_.push_back({cost.gradients, open, open, open});
    }
    for (std::size_t s = 0; s < shape.stages; ++s)
      schedules_.push_back(train::schedule_of_stage(spec.order, s, shape));
    played_.resize(shape.stages);
    now_ms_.resize(shape.stages);
    taken_.resize(shape.stages);
    // Of the first micro-batch: values from the beginning.
    for (Way& way : down_) way.expected_ms[0] = 0;
  }

  std::vector<std::vector<PlayedPiece>> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < schedules_.size(); ++s)
        while (advance(s)) moved = true;
    }
    for (std::size_t s = 0; s < schedules_.size(); ++s)
      check(played_[s].size() == schedules_[s].size(), "a stage of a schedule waits for ever");
    return std::move(played_);
  }

 private:
  bool advance(std::size_t s) {
    if (played_[s].size() == schedules_[s].size()) return false;
    const StagePiece& piece = schedules_[s][played_[s].size()];
    double& now = now_ms_[s];
    const double begin = now;
    if (piece.what == take_values || piece.what == take_gradients) {
      Way& way = piece.what == take_values ? down_[s - 1] : up_[s];
      const auto there = way.there(piece.micro);
      if (!there) return false;
      now = std::max(now, *there);
      expect_next(s, piece, now);
    } else if (piece.what == give_values) {
      down_[s].given_ms[piece.micro] = now;
      if (taken_[s] == piece.micro) up_[s].expected_ms[piece.micro] = now;
    } else if (piece.what == give_gradients) {
      up_[s - 1].given_ms[piece.micro] = now;
    } else {
      const auto room = room_for(s, piece);
      if (!room) return false;
      now = std::max(now, *room) + length_of(s, piece.what);
    }
    played_[s].push_back({piece, begin, now});
    return true;
  }

  double length_of(std::size_t s, StagePiece::Do what) const {
    const StagePace& pace = spec_.stages[s];
    return what == forward    ? pace.forward_ms
           : what == backward ? pace.backward_ms
                              : pace.weights_ms;
  }

  /// Gradients are expected once the values of their micro-batch were given, too.
  void expect_next(std::size_t s, const StagePiece& taken, double now) {
    const std::size_t next = taken.micro + 1;
    if (taken.what == take_gradients) taken_[s] = next;
    if (next == spec_.micro_batches) return;
    if (taken.what == take_values)
      down_[s - 1].expected_ms[next] = now;
    else if (down_[s].given_ms[next])
      up_[s].expected_ms[next] = now;
  }

  /// When the messages have left that are where a piece writes.
  std::optional<double> room_for(std::size_t s, const StagePiece& piece) {
    if (piece.what == weight_gradients) return 0;
    const bool down = piece.what == forward;
    if (down ? s + 1 == schedules_.size() : s == 0) return 0;
    const std::size_t slots =
        train::slots_of_stage(spec_.order, s, {schedules_.size(), spec_.micro_batches});
    if (piece.micro < slots) return 0;
    return (down ? down_[s] : up_[s - 1]).there(piece.micro - slots);
  }

  const PipelinePaces& spec_;
  std::vector<Way> down_, up_;  ///< by boundary
  std::vector<std::vector<StagePiece>> schedules_;
  std::vector<std::vector<PlayedPiece>> played_;
  std::vector<double> now_ms_;
  std::vector<std::size_t> taken_;  ///< gradients, by stage
};

}  // namespace

std::vector<std::vector<PlayedPiece>> play_pipeline(const PipelinePaces& spec) {
  return PipelinePlay(spec).run();
}

}  // namespace lockstep::study
