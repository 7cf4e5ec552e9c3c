#pragma once

// Batch norm over the rows of several ranks (model-options.norm-ranks), as PyTorch's SyncBatchNorm
// does it: mean and variance in forward, and in backward the two sums that the gradient of the
// input needs. gamma's and beta's gradients stay each rank's own sums, which the exchange adds up.
//
// Why ranks gather and do not sum. Means and squared distances from them are merged in the order of
// the ranks (merged() below), which a sum of vectors cannot do; and the host waits for one hop
// in place of two. What travels is small: for each channel two floats, to each of the other ranks.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/batch_norm.hpp"
#include "lockstep/comm/communicator.hpp"

namespace lockstep::backend {

using arithmetic::merged;
using arithmetic::SampleMoments;

/// The ranks that share batch norm's statistics with this one.
/// **Invariants:** its collectives are in the launch order of all others, because a tape's steps
/// make them, which are alike on all ranks.
/// **Thread safety:** none; the main thread uses it.
class NormSpan {
 public:
  /// `group`: the ranks of the span.
  explicit NormSpan(std::unique_ptr<comm::Communicator> group) : group_(std::move(group)) {}
  std::size_t ranks() const { return static_cast<std::size_t>(group_->world()); }
  std::size_t rank() const { return static_cast<std::size_t>(group_->rank()); }
  /// `chunks`, in the host's memory, has one chunk for each rank, all of one size. This rank gives
  /// its own and gets the others. Waits for them, and meanwhile advances what else is in flight.
  /// Throws Error naming the ranks that are missing after the deadline.
  void gather(std::span<float> chunks, std::string_view name);
  /// The same in a device's memory, without the host: the chunks go once `compute` has made this
  /// rank's, and later work of `compute` has the others'.
  void gather(std::span<float> chunks, std::string_view name, device::Stream& compute);
  /// Calls `arrived` until it is true. Meanwhile this rank counts as waiting for others.
  void wait(const std::function<bool()>& arrived);
  /// How long the host has waited for the others since the last call.
  double take_waited_ms() { return std::exchange(waited_ms_, 0); }
  /// The same ranks, for messages of other kinds: see Communicator.
  std::unique_ptr<comm::Communicator> channel(std::string_view name) {
    return group_->channel(name);
  }

 private:
  std::unique_ptr<comm::Communicator> group_;
  double waited_ms_ = 0;
};

/// This rank's group of that many consecutive ranks of `all`, which must divide among them. `all`
/// must outlive it. Collective.
std::unique_ptr<comm::Communicator> consecutive(std::size_t ranks, comm::Communicator& all,
                                                std::string_view name);

/// Spans of this many consecutive ranks of `replicas`, which must divide among them; null for 1.
/// Throws InputError where `backend` cannot share statistics. `replicas` must outlive it.
/// Collective.
std::unique_ptr<NormSpan> make_norm_span(std::size_t ranks, const Backend& backend,
                                         comm::Communicator& replicas);

}  // namespace lockstep::backend
