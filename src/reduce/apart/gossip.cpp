#include "reduce/apart/gossip.hpp"

#include <fmt/format.h>

#include <bit>
#include <exception>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/arena.hpp"
#include "reduce/plain_state.hpp"

namespace lockstep::reduce {

using backend::Part;
using backend::Vector;

namespace {

/// How far the receiver of a step's message is: 1, 2, 4, ... below `world`, one after the other.
std::size_t distance_in(std::uint64_t step, std::size_t world) {
  const auto distances = static_cast<std::uint64_t>(std::bit_width(world - 1));
  check(distances > 0, "a message goes to another rank");
  return std::size_t{1} << step % distances;
}

}  // namespace

/// Two for each message, and what settling takes: the next message lends its two.
std::size_t gossip_bytes(std::size_t numbers, bool second_moments, std::size_t late) {
  return settling_bytes(numbers, false, second_moments, 2) +
         2 * (late + 1) * numbers * sizeof(float);
}

GossipExchange::GossipExchange(const ExchangeSpec& spec, const ExchangeParts& parts)
    : BucketExchange(spec, parts.communicator),
      late_(spec.gossip.late),
      parts_(parts),
      vectors_(parts.backend.vectors()),
      own_(parts) {
  check(world() > 1, "one rank has no other one to send weights to");
  check(!spec.loss_scale, "ranks that do not wait for each other have no common loss scale");
  for (std::size_t i = 0; i <= late_; ++i)
    messages_.push_back(
        {own_.allocate("weights that are sent"), own_.allocate("weights that come"), nullptr});
}

GossipExchange::~GossipExchange() {
  if (steps_ > 0 && std::uncaught_exceptions() == 0) communicator_.network().synchronize();
}

std::string GossipExchange::note() const {
  const std::string when =
      late_ == 0 ? "at once" : fmt::format("{} step{} later", late_, late_ == 1 ? "" : "s");
  return fmt::format(
      "each rank steps alone and sends half of its weights to another one, which adds them {}; "
      "ranks differ, and their mean is evaluated and saved",
      when);
}

void GossipExchange::begin() {
  BucketExchange::begin();
  if (late_ > 0) vectors_.cast(own_.of(Part::weights), own_.in(next_message().sent));
  if (steps_ == 0) begin_equal();
}

/// All ranks have the same weights, as if all messages on their way held them, too.
void GossipExchange::begin_equal() {
  for (Message& message : messages_) {
    message.arrived.reset();
    vectors_.cast(own_.of(Part::weights), own_.in(message.came));
  }
}

/// The gradients are divided by the rows of all ranks: times their number they are one rank's.
void GossipExchange::finish(std::size_t number) {
  const Bucket& bucket = buckets()[number];
  vectors_.scale(static_cast<float>(world()), own_.of(Part::gradients, bucket.offset, bucket.size));
}

void GossipExchange::await(const Message& message) const {
  if (!message.arrived) return;
  const comm::Waiting waiting(parts_.communicator.activity);
  parts_.backend.device().compute().wait(*message.arrived);  // a message precedes its use
}

/// From z - d to z - d / w.
void GossipExchange::lengthen_step() {
  if (late_ == 0) return;
  const float factor = 1 + static_cast<float>(late_) / 2;  // 1 / w
  const Vector weights = own_.of(Part::weights, 0, learned());
  vectors_.scale(factor, weights);
  vectors_.add(1 - factor, own_.in(next_message().sent, learned()), weights);
}

void GossipExchange::send(std::uint64_t step) {
  Message& message = messages_[step % messages_.size()];
  vectors_.cast(own_.of(Part::weights), own_.in(message.sent));
  device::Stream& network = communicator_.network();
  network.wait(*parts_.backend.device().compute().record());  // the weights precede their sending
  const std::size_t distance = distance_in(step, world());
  communicator_.together([&] {
    communicator_.send(own_.in(message.sent).elements(),
                       static_cast<int>((rank() + distance) % world()), "half of the weights",
                       network);
    communicator_.receive(own_.in(message.came).elements(),
                          static_cast<int>((rank() + world() - distance) % world()),
                          "half of the weights", network);
  });
  message.arrived = network.record();
}

void GossipExchange::mix(const Message& message) {
  await(message);
  const Vector weights = own_.of(Part::weights);
  vectors_.scale(0.5f, weights);
  vectors_.add(0.5f, own_.in(message.came), weights);
  parts_.parameters.weights_changed();
}

void GossipExchange::after_update() {
  lengthen_step();
  send(steps_);
  ++steps_;
  mix(message_of(steps_));  // of `late` steps before this one: the oldest
}

std::vector<Vector> GossipExchange::on_their_way() const {
  std::vector<Vector> all;
  for (std::size_t i = 1; i <= late_; ++i) {
    const Message& message = message_of(steps_ + i);
    await(message);
    all.push_back(own_.in(message.came));
  }
  return all;
}

/// The weights become this rank's x and those of the messages for it.
void GossipExchange::add_messages() {
  const Vector weights = own_.of(Part::weights);
  const float share = 1 / static_cast<float>(2 + late_);  // w / 2
  vectors_.scale(2 * share, weights);
  for (const Vector& message : on_their_way()) vectors_.add(share, message, weights);
}

void GossipExchange::settle() {
  if (steps_ == 0) return;
  const Vector free[] = {own_.in(next_message().sent), own_.in(next_message().came)};
  own_.settle(free, [this] { add_messages(); });
}

std::vector<ArenaPart> GossipExchange::saved() const {
  std::vector<ArenaPart> all = own_.saved();
  for (const Vector& message : on_their_way()) all.push_back(arena_part(parts_, message));
  return all;
}

StateOutline GossipExchange::outline() const {
  StateOutline state{.texts = {{steps_key, std::to_string(steps_)}}, .parts = {}};
  const std::size_t each = plain_bytes(parts_.parameters.layout(), saved());
  for (std::size_t r = 0; steps_ > 0 && r < world(); ++r)
    state.parts.push_back({rank_key(r), each});
  return state;
}

void GossipExchange::save(comm::Control& control, const TakeBytes& take) const {
  check(!own_.is_settled(), "the exchange is settled");
  for (std::size_t r = 0; steps_ > 0 && r < world(); ++r) {
    save_plain(parts_, static_cast<int>(r), saved(), take);
    next_part(control);
  }
}

void GossipExchange::begin_at(std::uint64_t step) {
  steps_ = step;
  begin_equal();
}

std::string GossipExchange::load(const SavedState& state) {
  constexpr std::string_view left_out = "each rank's own weights, which begin at their mean";
  begin_at(saved_steps(state, name()));
  if (steps_ == 0) return "";
  if (is_unordered(state)) return of_older(left_out);
  const std::size_t saved_by = state.parts(rank_prefix);
  if (saved_by != world()) return of_others(left_out, saved_by, "ranks", world());
  require(load_plain(parts_, state, rank_key(rank()), saved()),
          fmt::format("the state of the exchange '{}' is of another network, or of messages that "
                      "are added another number of steps later (sync.gossip-late), which here is "
                      "{}",
                      name(), late_));
  parts_.parameters.weights_changed();
  return "";
}

}  // namespace lockstep::reduce
