#pragma once

// How backward makes values again (--recompute). A network is a chain of segments between cut
// points, at which only one value is alive. backend/recompute chooses the spans of segments that
// are made again; the tape of such a span's backward begins with the span's forward, and the memory
// plan follows from the tape. Each backend says which buffer lives how long; backend/lifetimes
// finds from that what each span costs, and backend/placement places all buffers, with several
// micro-batches in flight (slots) and for the stages of a network. --memory-limit holds for a
// rank's whole process: train/decide/decide counts what else is in it, and the plan gets the
// rest. What a step leaves free may hold copies of the state, which rank 0 writes while steps
// continue. Where none fits, it makes a checkpoint in the place of a step's values, whose pages it
// gives back first, and the steps wait.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::backend {

/// Which values of forward a program keeps for backward, and which ones backward makes again from
/// those. The bits are the same in any case.
struct Recompute {
  enum class Mode {
    none,      ///< keep all that backward reads
    segments,  ///< cut the network into `segments` parts where that saves the most memory, and keep
               ///< what passes from one to the next
    automatic,  ///< make as little as possible again so that the program keeps the limit
    least       ///< take as little memory as can be reached: to measure what else a run takes
  };
  Mode mode = Mode::none;
  std::size_t segments = 0;
  /// automatic: bytes of the parameters, the values, the scratch and `reserved` together.
  std::size_t memory_limit = 0;
  std::size_t reserved = 0;       ///< bytes of the limit that the process needs for other things
  bool scratch_reserved = false;  ///< these were measured, and have the scratch in them
  std::size_t between_steps = 0;  ///< bytes that it needs in place of the values, when no step runs
};

/// "auto", "none" or the number of segments, as in --recompute. Throws InputError naming `key`.
Recompute parse_recompute(const std::string& text, const std::string& key);
std::string to_string(const Recompute& recompute);  ///< what parse_recompute() reads

/// Consecutive segments [first, last) of a network, handled alike. A segment is what lies between
/// two neighbouring cut points.
struct Span {
  std::size_t first = 0, last = 0;
  bool again = false;  ///< backward makes their values again, from the value at their start
  bool operator==(const Span&) const = default;
};

struct SpanCost {
  std::size_t stored = 0;  ///< bytes that remain from forward until its own backward
  std::size_t peak = 0;    ///< most bytes alive at a time, without what earlier spans store
  double operations = 0;   ///< made again
};

/// A network as a chain of segments. Which spans it is cut into decides its memory: while a span
/// runs, all earlier ones occupy what they store. Pure.
class Chain {
 public:
  /// `cost` is asked for every span; the last segment is never made again, for its backward comes
  /// right after its forward.
  Chain(std::size_t segments, const std::function<SpanCost(const Span&)>& cost);

  std::size_t segments() const { return segments_; }
  /// The spans that need at most `limit` bytes and make the least again, by exact search; nothing
  /// if there are none.
  std::optional<std::vector<Span>> fewest_operations(std::size_t limit) const;
  /// The spans that need the least memory, and of those the ones that make the least again.
  std::vector<Span> least_memory() const;
  /// The same for this number of spans (at most the number of segments), all but the last made
  /// again.
  std::vector<Span> least_memory(std::size_t spans) const;
  std::size_t peak(const std::vector<Span>& spans) const;   ///< bytes
  double operations(const std::vector<Span>& spans) const;  ///< made again

 private:
  struct Label;
  const SpanCost& cost(const Span& span) const;
  std::optional<std::vector<Span>> solve(std::size_t limit, std::size_t spans) const;
  std::vector<Span> smallest(std::size_t spans) const;

  std::size_t segments_;
  std::vector<SpanCost> costs_;  // by first, last and again
};

}  // namespace lockstep::backend
