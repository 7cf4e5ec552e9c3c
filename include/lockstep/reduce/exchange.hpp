#pragma once

// How ranks agree on gradients or weights: the policy that a trainer follows in every step.

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/choices.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/reduce/buckets.hpp"

namespace lockstep::reduce {

/// exact: the sum of all ranks' gradients, in full precision.
enum class ExchangeKind { exact };

/// Slices [first, last) of the arena; empty by default.
struct SliceRange {
  std::size_t first = 0, last = 0;
};

/// An exchange's state in checkpoints: bytes by name, at least one byte each.
using ExchangeState = std::map<std::string, std::string>;

/// Per step the trainer calls begin(), ready(slice) for each slice in whatever order they become
/// final, and progress() between backward's pieces. Then, for each bucket in order, it calls
/// wait(bucket) and updates the slices of updates_after(bucket). At the end it calls
/// after_update(). All ranks have the same exchange and make the same steps.
/// **Invariants:** all ranks issue the same collectives in the same order.
/// **Thread safety:** none; one thread uses it.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// The policy, as checkpoints name it.
  virtual std::string name() const = 0;
  /// Whether all ranks have the same weights after each step, so that an audit may compare them.
  virtual bool keeps_ranks_equal() const = 0;
  virtual const std::vector<Bucket>& buckets() const = 0;

  /// Throws Error when the last step is not over.
  virtual void begin() = 0;
  /// The slice's gradient is final on the compute stream. Throws Error when it already was.
  virtual void ready(std::size_t slice) = 0;
  /// Advances collectives in flight. Cheap; also finds out why one failed, and throws that.
  virtual void progress() = 0;
  /// Later work on the compute stream sees the bucket's gradients as the update needs them. Throws
  /// Error when some slices of the bucket are not final.
  virtual void wait(std::size_t bucket) = 0;
  /// The slices that may be updated once `bucket` was waited for. Over a step these ranges cover
  /// every slice once, in order.
  virtual SliceRange updates_after(std::size_t bucket) const = 0;
  /// All updates of the step are in the compute stream.
  virtual void after_update() = 0;

  /// What a resume needs for the same bits, complete on rank 0. Collective.
  virtual ExchangeState save(comm::Control& control) const = 0;
  /// `state` is the same on all ranks, as rank 0 saved it. Throws InputError naming what does not
  /// fit.
  virtual void load(const ExchangeState& state) = 0;
};

/// Throws InputError naming both exchanges when `saved_by`, the one that wrote the checkpoint at
/// `origin`, is not this one; else loads the state. Errors name `origin`.
void load_state(Exchange& exchange, const std::string& saved_by, const ExchangeState& state,
                const std::string& origin);

struct ExchangeSpec {
  ExchangeKind kind = ExchangeKind::exact;
  std::vector<Bucket> buckets;  ///< of the gradient arena
  /// A rank updates nothing before all buckets are reduced, because an overflow in any of them
  /// skips the whole step.
  bool update_at_once = false;
};

/// `gradients`: the arena's first float. `compute`: the stream on which gradients become final. The
/// references must outlive the exchange.
std::unique_ptr<Exchange> make_exchange(ExchangeSpec spec, comm::Communicator& communicator,
                                        device::Stream& compute, float* gradients);

}  // namespace lockstep::reduce

namespace lockstep {

template <>
struct Choices<reduce::ExchangeKind> {
  using enum reduce::ExchangeKind;
  static constexpr Choice<reduce::ExchangeKind> all[] = {{exact, "exact"}};
};

}  // namespace lockstep
