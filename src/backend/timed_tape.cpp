#include "lockstep/backend/timed_tape.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/cost.hpp"

namespace lockstep::backend {
namespace {

constexpr GpuRates balanced{.bandwidth = 1,
                            .fp32 = operations_a_byte,
                            .tf32 = operations_a_byte,
                            .bf16 = operations_a_byte,
                            .fp16 = operations_a_byte};

/// An update reads weights, gradients and momentum, and writes weights and momentum.
constexpr double update_floats = 5;

constexpr const char* backward_of = " backward";

double pass_ms(const nn::PassCost& cost, Precision precision, const GpuRates& rates) {
  return 1e3 * std::max(cost.operations / rates.of(precision), cost.bytes() / rates.bandwidth);
}

std::vector<std::vector<std::size_t>> slices_by_node(const nn::Network& network) {
  std::vector<std::vector<std::size_t>> slices(network.nodes.size());
  const nn::ArenaLayout layout = plain_layout(network);
  for (std::size_t s = 0; s < layout.slices.size(); ++s)
    slices[layout.slices[s].tensor.node].push_back(s);
  return slices;
}

TimedTape floors(const nn::Network& network, std::size_t rows, Precision precision,
                 const GpuRates& rates) {
  const nn::CostSpec spec{.rows = rows, .value_bytes = value_bytes(precision)};
  const auto slices = slices_by_node(network);
  TimedTape tape;
  for (std::size_t n = 0; n < network.nodes.size(); ++n) {
    const nn::NodeCost cost = nn::cost_of(network, n, spec);
    const double ms =
        pass_ms(cost.statistics, precision, rates) + pass_ms(cost.forward, precision, rates);
    tape.forward.push_back({network.nodes[n].name, ms, {}});
  }
  for (std::size_t n = network.nodes.size(); n-- > 0;) {
    const nn::NodeCost cost = nn::cost_of(network, n, spec);
    const double weights_ms = pass_ms(cost.weight_gradient, precision, rates);
    const double ms = weights_ms + pass_ms(cost.data_gradient, precision, rates);
    const bool later = network.nodes[n].op == nn::Op::conv;
    if (ms > 0 || !slices[n].empty())
      tape.backward.push_back(
          {network.nodes[n].name + backward_of, ms, slices[n], later ? weights_ms : 0});
  }
  const double floats = update_floats * static_cast<double>(plain_layout(network).size);
  tape.update_ms = 1e3 * floats * sizeof(float) / rates.bandwidth;
  return tape;
}

void scale(TimedTape& tape, double factor) {
  for (auto* steps : {&tape.forward, &tape.backward})
    for (TimedStep& step : *steps) {
      step.ms *= factor;
      step.weights_ms *= factor;
    }
}

bool has_both_gradients(const nn::Node& node) {
  return node.op == nn::Op::conv || node.op == nn::Op::linear || node.op == nn::Op::batch_norm;
}

/// Of each step of backward: one for each of its node's gradients.
std::map<std::string, double> backward_kernels(const nn::Network& network) {
  std::map<std::string, double> kernels;
  for (const nn::Node& node : network.nodes)
    kernels[node.name + backward_of] = has_both_gradients(node) ? 2 : 1;
  return kernels;
}

double kernels_of(const TimedTape& tape, const nn::Network& network) {
  const auto kernels = backward_kernels(network);
  double sum = static_cast<double>(tape.forward.size());
  for (const TimedStep& step : tape.backward) sum += kernels.at(step.name);
  return sum;
}

/// One for each node in forward and for each of its gradients in backward.
void add_to_kernels(TimedTape& tape, const nn::Network& network, double ms) {
  const auto kernels = backward_kernels(network);
  for (TimedStep& step : tape.forward) step.ms += ms;
  for (TimedStep& step : tape.backward) {
    step.ms += ms * kernels.at(step.name);
    if (step.weights_ms > 0) step.weights_ms += ms;
  }
}

TimedTape of_pace(const nn::Network& network, std::size_t rows, Precision precision,
                  const LinePace& pace, const nn::Network* of) {
  TimedTape tape = floors(network, rows, precision, balanced);
  const nn::Network& whole = of ? *of : network;
  const TimedTape all = of ? floors(whole, rows, precision, balanced) : tape;
  scale(tape, pace.row_ms * static_cast<double>(rows) / (all.forward_ms() + all.backward_ms()));
  add_to_kernels(tape, network, pace.step_ms / kernels_of(all, whole));
  tape.update_ms = 0;  // part of step_ms
  return tape;
}

TimedTape of_pace(const nn::Network& network, std::size_t rows, Precision precision,
                  const GpuPace& pace, const nn::Network*) {
  TimedTape tape = floors(network, rows, precision, pace.rates);
  scale(tape, 1 / pace.efficiency);
  tape.update_ms /= pace.efficiency;
  return tape;
}

TimedTape of_pace(const nn::Network& network, std::size_t rows, Precision, const MeasuredPace& pace,
                  const nn::Network*) {
  require(network.nodes.front().op != nn::Op::receive && network.nodes.back().op != nn::Op::send,
          pace.origin +
              ": a tape that was measured is one rank's, with all layers: for a stage "
              "give clock.row-ms or a GPU's profile");
  const auto other = [&](const std::string& what) {
    return InputError(fmt::format("{}: its tape is of {} and does not fit {}: {}", pace.origin,
                                  pace.model, network.name, what));
  };
  std::map<std::string, std::size_t> waiting;
  const nn::ArenaLayout layout = plain_layout(network);
  for (std::size_t s = 0; s < layout.slices.size(); ++s) waiting[layout.slices[s].tensor.name] = s;
  const double factor = static_cast<double>(rows) / static_cast<double>(pace.rows);
  TimedTape tape;
  tape.update_ms = pace.update_ms;
  for (std::size_t i = 0; i < pace.tape.size(); ++i) {
    TimedStep step{pace.tape[i].name, pace.tape[i].ms * factor, {}};
    for (const std::string& tensor : pace.tape[i].final_tensors) {
      const auto found = waiting.find(tensor);
      if (found == waiting.end()) throw other(tensor + " is not there, or there twice");
      step.final_slices.push_back(found->second);
      waiting.erase(found);
    }
    (i < pace.forward_steps ? tape.forward : tape.backward).push_back(std::move(step));
  }
  if (!waiting.empty()) throw other(waiting.begin()->first + " is never final");
  return tape;
}

double sum_ms(const std::vector<TimedStep>& steps) {
  double sum = 0;
  for (const TimedStep& step : steps) sum += step.ms;
  return sum;
}

}  // namespace

double TimedTape::forward_ms() const { return sum_ms(forward); }
double TimedTape::backward_ms() const { return sum_ms(backward); }

nn::ArenaLayout plain_layout(const nn::Network& network) {
  return nn::arena_layout(network, [](const nn::Tensor& tensor) { return tensor.count(); });
}

TimedTape time_tape(const nn::Network& network, std::size_t rows, Precision precision,
                    const Pace& pace, const nn::Network* whole) {
  return std::visit([&](const auto& one) { return of_pace(network, rows, precision, one, whole); },
                    pace);
}

double floor_ms(const nn::Network& network, std::size_t rows, Precision precision,
                const GpuRates& rates) {
  const TimedTape tape = floors(network, rows, precision, rates);
  return tape.forward_ms() + tape.backward_ms() + tape.update_ms;
}

std::size_t value_bytes(Precision precision) {
  return precision == Precision::bf16 || precision == Precision::fp16 ? 2 : 4;
}

}  // namespace lockstep::backend
