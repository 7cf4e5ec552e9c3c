#include "ports/clock/program.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep::clock {

ClockProgram::ClockProgram(const nn::Network& network, const backend::ProgramSpec& spec,
                           const backend::TimedTape& times, ClockStream& stream)
    : spec_(spec), stream_(stream), forward_(make_tape(times.forward)) {
  check(spec.batch > 0 && spec.slots > 0, "a program needs at least one row and one slot");
  require(spec.recompute.mode == backend::Recompute::Mode::none,
          "recompute: the clock backend has no values that backward could make again");
  if (spec.training) backward_ = make_tape(times.backward);
  const nn::Node &first = network.nodes.front(), &last = network.nodes.back();
  if (first.op == nn::Op::receive)
    received_ = make_crossing(first, nn::readers(network).front().size());
  if (last.op == nn::Op::send) sent_ = make_crossing(last, last.gradients);
}

backend::Tape ClockProgram::make_tape(const std::vector<backend::TimedStep>& steps) {
  backend::Tape tape;
  for (const backend::TimedStep& step : steps)
    tape.push_back({step.name, [this, ms = step.ms] { stream_.pass(ms); }, step.final_slices});
  return tape;
}

ClockProgram::Crossing ClockProgram::make_crossing(const nn::Node& node,
                                                   std::size_t gradients) const {
  Crossing crossing{spec_.batch * node.shape.count() * backend::value_bytes(spec_.precision), {}};
  const std::size_t bytes = crossing.value_bytes * (1 + gradients);
  crossing.of_slot.assign(spec_.slots, std::vector<std::byte>(bytes));
  return crossing;
}

backend::Boundary ClockProgram::at_boundary(Crossing& crossing) const {
  if (crossing.of_slot.empty()) return {};
  const std::span<std::byte> all = crossing.of_slot[slot_];
  return {all.first(crossing.value_bytes), all.subspan(crossing.value_bytes)};
}

void ClockProgram::select(std::size_t slot) {
  check(slot < spec_.slots, fmt::format("a program of {} slots has no slot {}", spec_.slots, slot));
  slot_ = slot;
}

void ClockProgram::load(const data::Batch& batch) {
  check(batch.capacity == spec_.batch,
        "the batch does not have the size that the program was compiled for");
  if (batch.targets != nullptr) metrics_.rows += batch.rows;
}

void ClockProgram::load_normalised(std::span<const float>, std::span<const data::Target> targets) {
  for (const data::Target& target : targets) metrics_.rows += target.label_a >= 0 ? 1 : 0;
}

backend::Metrics ClockProgram::take_metrics() {
  stream_.synchronize();
  return std::exchange(metrics_, {});
}

void ClockProgram::copy_logits(std::span<float> logits) const {
  std::fill(logits.begin(), logits.end(), 0.f);
}

}  // namespace lockstep::clock
