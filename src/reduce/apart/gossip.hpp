#pragma once

// Why no push-sum weight travels. In push-sum (Kempe et al. 2003; Assran et al. 2019, "Stochastic
// Gradient Push") a rank holds biased weights x and a number w, sends parts of both, adds what it
// gets, and trains z = x / w. Here each rank keeps a half in each step, sends the other one, and
// gets one that was sent `late` steps ago, so w depends on the step alone. A run begins as if ranks
// with the first weights had always done that: then a rank holds w = 2 / (2 + late), each message
// on its way w / 2, together 1 for each rank, and w never changes. With w = 1 and no messages, as
// published, it would fall to 2^-late first, and the steps of z, which are those of x divided by w,
// would be too long.
//
// Why messages are late by a fixed number of steps, and not added when they come. The bits of a run
// would depend on time. So a rank that is always slower than others holds them up after `late`
// steps; one that is late now and then does not.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reduce/apart/own_state.hpp"
#include "reduce/bucket_exchange.hpp"

namespace lockstep::reduce {

/// Stochastic gradient push over a directed exponential graph: each rank steps by its own
/// gradients, then gives a half of its weights to the rank 1, 2, 4, ... places after it, another
/// one in each step, and gets one from as many places before it. Momentum stays each rank's own.
/// Running statistics are mixed in the same way, but have no gradient. A rank needs others, and
/// gradients no loss scale.
///
/// Messages hold z. With w and x as above, a step that takes z to z - d takes x to x - d, so z to
/// z - d / w; half of that and half of the late message is the next z. What stands for all ranks is
/// the sum of all x, of ranks and messages, for each rank: a step changes it by the mean of d.
class GossipExchange final : public BucketExchange {
 public:
  GossipExchange(const ExchangeSpec& spec, const ExchangeParts& parts);
  ~GossipExchange() override;
  std::string note() const override;
  bool repeats() const override { return false; }
  std::size_t meets_every() const override { return late_ == 0 ? 1 : most_steps_apart; }
  void begin() override;
  void after_update() override;
  void settle() override;
  void unsettle() override { own_.unsettle(); }
  StateOutline outline() const override;
  void save(comm::Control& control, const TakeBytes& take) const override;
  std::string load(const SavedState& state) override;
  void begin_at(std::uint64_t step) override;

 private:
  /// What this rank sent in a step, and what came from the other one.
  struct Message {
    backend::DeviceMemory sent, came;
    std::unique_ptr<device::Event> arrived;
  };
  /// Of the message that a step will send: until then nothing needs them. `sent` keeps the weights
  /// before that step, and while settled both keep what is this rank's own.
  const Message& next_message() const { return message_of(steps_); }
  void start(std::size_t) override {}
  void finish(std::size_t bucket) override;
  std::size_t learned() const { return parts_.parameters.layout().learned_size; }
  std::size_t rank() const { return static_cast<std::size_t>(parts_.communicator.rank()); }
  std::size_t world() const { return static_cast<std::size_t>(parts_.communicator.world()); }
  const Message& message_of(std::uint64_t step) const { return messages_[step % messages_.size()]; }
  /// Of the messages that are on their way, the oldest first; they have come.
  std::vector<backend::Vector> on_their_way() const;
  void await(const Message& message) const;
  void begin_equal();
  void lengthen_step();
  void send(std::uint64_t step);
  void mix(const Message& message);
  void add_messages();
  std::vector<ArenaPart> saved() const;

  const std::size_t late_;
  const ExchangeParts parts_;
  backend::Vectors& vectors_;
  OwnState own_;
  std::vector<Message> messages_;  ///< late + 1: one is sent before the oldest is used
  std::uint64_t steps_ = 0;
};

std::size_t gossip_bytes(std::size_t numbers, bool second_moments, std::size_t late);

}  // namespace lockstep::reduce
