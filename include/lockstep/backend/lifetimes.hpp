#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/backend/placement.hpp"

namespace lockstep::backend {

/// What a program's lifetimes follow from. Forward consists of parts, each one step of the tape.
struct LifetimesSpec {
  std::size_t parts = 0;
  std::vector<double> operations;   ///< of each unit's forward
  std::vector<std::size_t> cuts;    ///< the units whose values can end a segment, in order
  std::vector<std::size_t> begins;  ///< by cut: the part with which the next segment begins
  bool cut_is_next = false;  ///< that part also makes the cut's value, so that its backward needs
                             ///< what the segment before made
  bool training = true;
  bool weights_later = false;  ///< backward leaves weight gradients to steps after it, by part
  std::size_t alignment = 1;   ///< of all buffers, in bytes
};

/// Which buffer of a program is in use when, for any choice of the spans that are made again; what
/// each choice costs, and where it places the buffers. A backend derives from this, says how long
/// its buffers live, and calls choose() at the end of its constructor.
class Lifetimes {
 public:
  /// A step of the tape after forward: a part's backward, or its forward again.
  struct Step {
    std::size_t part;
    bool again;
  };

  virtual ~Lifetimes() = default;
  std::size_t segments() const { return spec_.cuts.size() + 1; }
  /// Decides what is made again; the rest describes that choice. At first everything is kept.
  void choose(const std::vector<Span>& spans);
  const std::vector<Step>& after_forward() const { return after_forward_; }
  /// True for units that backward runs forward again.
  virtual bool made_again(std::size_t unit) const = 0;
  /// What is made again, as a share of all of forward's operations.
  double share_made_again() const;
  /// The costs of a span, all other segments being kept.
  SpanCost cost(const Span& span);
  /// The most bytes alive at a time.
  std::size_t peak() const;
  /// `later`: ProgramSpec::weights_later.
  Placement place(std::size_t slots, std::size_t later) const {
    return {buffers(), {.slots = slots, .later = later}, spec_.alignment};
  }

 protected:
  explicit Lifetimes(LifetimesSpec spec) : spec_(std::move(spec)) {}
  const LifetimesSpec& spec() const { return spec_; }
  /// The numbers of a part's steps after forward; 0: it has none.
  std::size_t again_at(std::size_t part) const { return again_[part]; }
  std::size_t backward_at(std::size_t part) const { return backward_[part]; }
  /// The step that makes a part's weight gradients: backward, or one after it, from the last part
  /// to the first.
  std::size_t weights_at(std::size_t part) const {
    return spec_.weights_later ? backward_end() + spec_.parts - 1 - part : backward_[part];
  }
  /// True when a chosen span begins after this unit.
  bool ends_span(std::size_t unit) const;
  /// The chosen span to which this unit of this part belongs.
  std::size_t span_with(std::size_t unit, std::size_t part) const;
  const Span& span(std::size_t number) const { return spans_[number]; }
  /// The part with which a segment begins; after the last one, the number of parts.
  std::size_t begin_of(std::size_t segment) const;

  virtual std::size_t span_of(std::size_t unit) const = 0;
  /// By part: which ones of [begin, end) backward runs again, if their span is made again.
  virtual std::vector<bool> needed_again(std::size_t begin, std::size_t end) const = 0;
  /// The buffers, with their units and lives.
  virtual std::vector<PlannedBuffer> requested() const = 0;

 private:
  std::size_t backward_end() const { return spec_.parts + after_forward_.size(); }
  std::size_t end_of(const Span& span) const;
  std::size_t begin_of_backward(const Span& span) const;
  void run(std::size_t part, bool again);
  std::vector<PlannedBuffer> buffers() const;
  std::vector<std::size_t> alive(const std::vector<PlannedBuffer>& buffers) const;
  std::size_t aligned(std::size_t bytes) const;
  double operations_again() const;

  LifetimesSpec spec_;
  std::vector<Span> spans_;
  std::vector<Step> after_forward_;
  std::vector<std::size_t> again_, backward_;  // by part
};

}  // namespace lockstep::backend
