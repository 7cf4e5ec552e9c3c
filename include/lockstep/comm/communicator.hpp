#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/elements.hpp"
#include "lockstep/comm/waits/absence.hpp"
#include "lockstep/device/device.hpp"

namespace lockstep::comm {

/// Moves tensors between the ranks of a group: the world, or a part of it that split() made.
///
/// Each verb puts one operation into the network stream and returns. The data must not be touched
/// until the stream has finished the operation. Operations on the same memory follow each other in
/// the order of the stream, so a sum over one group may be followed by one over another. `name`
/// says in errors what is moved.
///
/// **Launch order:** a run has one order of all collectives of all groups. Each rank puts those
/// that it takes part in into its one network stream, in this order. Then the first collective that
/// has not ended is at the front of the streams of all its ranks, so none waits for ever. (Kernels
/// of two NCCL communicators that run at once, in different orders on two ranks, would; and over
/// MPI and TCP, two ranks find by this order which messages belong together.) A send is a
/// collective of two ranks; what together() holds counts as one. Each channel() has a separate
/// order.
///
/// For a group of one, and for no elements, a verb does nothing. Throws Error naming the verb's
/// `name` for a root or peer outside of the group, a count that the group cannot share equally, a
/// type that the transport lacks, and a stream other than network(). When nothing has moved for the
/// deadline, a call that waits throws Error naming the step, the collective, its group and, by
/// their numbers in the world, the ranks that are missing.
/// **Thread safety:** none; one thread uses a communicator and those split from it.
class Communicator {
 public:
  explicit Communicator(const ActivityTracker& of_rank = {}) : activity(of_rank) {}
  virtual ~Communicator() = default;
  virtual int rank() const = 0;              ///< in this group
  virtual int world() const = 0;             ///< ranks in this group
  virtual device::Stream& network() = 0;     ///< a group that was split off has its parent's
  virtual void begin_step(std::uint64_t) {}  ///< of all groups: errors name it. Optional.
  /// Makes one group of the ranks of each colour (0 or more), ordered by `key`, then by rank here.
  /// Null for a rank without a colour. Waits; collective over this group, which must outlive the
  /// new ones. `name` is the name of these groups in errors. Throws InputError when a colour is
  /// negative.
  virtual std::unique_ptr<Communicator> split(std::optional<int> colour, int key,
                                              std::string_view name) = 0;
  /// The same group once more, for messages that have no order against those of other
  /// communicators: it has its own network stream, in which only its own launch order counts, and
  /// which its own progress() advances. Waits; collective over the world. `name` is its name in
  /// errors. Throws InputError where the transport has none.
  virtual std::unique_ptr<Communicator> channel(std::string_view name);
  /// Every rank gets the sum (or maximum) of the ranks' data, in the same bits. Integers wrap
  /// around. On the host, sums of f16 and bf16 add in float and round once (over two levels, once
  /// on each); NCCL rounds as it likes.
  virtual void all_reduce(Elements data, Reduction reduction, std::string_view name,
                          device::Stream& stream) = 0;
  /// The data is one chunk for each rank, all of one size. Rank r's chunk r becomes the sum (or
  /// maximum) of the ranks' chunks r; what its other chunks then hold is not defined.
  virtual void reduce_scatter(Elements data, Reduction reduction, std::string_view name,
                              device::Stream& stream) = 0;
  /// The data is one chunk for each rank, all of one size. Rank r gives chunk r and gets the
  /// others.
  virtual void all_gather(Elements data, std::string_view name, device::Stream& stream) = 0;
  virtual void broadcast(Elements data, int root, std::string_view name,
                         device::Stream& stream) = 0;
  /// To another rank, which calls receive() with the same number of elements. Messages between two
  /// ranks keep their order.
  virtual void send(Elements data, int to, std::string_view name, device::Stream& stream) = 0;
  virtual void receive(Elements data, int from, std::string_view name, device::Stream& stream) = 0;
  /// The sends and receives that `calls` makes, on this communicator, progress together: ranks that
  /// exchange data do not wait for each other. Their memory must not overlap.
  virtual void together(const std::function<void()>& calls) { calls(); }
  /// A recording (device::Repeater) has put collectives of this communicator into the streams
  /// again, without calls; all of them end before `end`. Where a thread watches collectives, it
  /// watches these, too.
  virtual void repeated(std::string_view, std::unique_ptr<device::Event>) {}
  /// The deadline of a wait for `awaited`, ranks of this group, that happens outside of it. Null
  /// where the transport cannot tell who is missing.
  virtual std::unique_ptr<WaitDeadline> make_deadline(std::string_view, std::vector<int>) {
    return nullptr;
  }
  /// Advances collectives in flight (CPU) or checks them for errors (GPU), for all groups. Cheap:
  /// called between a step's pieces.
  virtual void progress() = 0;

  /// Of this rank, for all groups. What a collective moves counts there as progress; a caller that
  /// waits for its end marks that.
  const ActivityTracker activity;
};

}  // namespace lockstep::comm
