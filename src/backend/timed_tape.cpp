#include "lockstep/backend/timed_tape.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/cost.hpp"

namespace lockstep::backend {
namespace {

/// Of a device that computes that much while it moves a byte; 0: bytes take no time.
GpuRates balanced(double operations) {
  const double rate = operations > 0 ? operations : 1;
  return {.bandwidth = operations > 0 ? 1 : std::numeric_limits<double>::infinity(),
          .fp32 = rate,
          .tf32 = rate,
          .bf16 = rate,
          .fp16 = rate};
}

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
                  const LinePace& pace, const TapeOf& of) {
  const GpuRates rates = balanced(of.operations_a_byte);
  TimedTape tape = floors(network, rows, precision, rates);
  const nn::Network& whole = of.whole ? *of.whole : network;
  const TimedTape all = of.whole ? floors(whole, rows, precision, rates) : tape;
  scale(tape, pace.row_ms * static_cast<double>(rows) / (all.forward_ms() + all.backward_ms()));
  add_to_kernels(tape, network, pace.step_ms / kernels_of(all, whole));
  tape.update_ms = 0;  // part of step_ms
  return tape;
}

TimedTape of_pace(const nn::Network& network, std::size_t rows, Precision precision,
                  const GpuPace& pace, const TapeOf&) {
  TimedTape tape = floors(network, rows, precision, pace.rates);
  scale(tape, 1 / pace.efficiency);
  tape.update_ms /= pace.efficiency;
  return tape;
}

/// The share of a convolution's backward that its weight gradient needs, by operations.
double weights_share(const nn::Network& network, const std::vector<std::size_t>& nodes) {
  double weights = 0, all = 0;
  for (const std::size_t n : nodes) {
    if (network.nodes[n].op != nn::Op::conv) continue;
    const nn::NodeCost cost = nn::cost_of(network, n, {});
    weights += cost.weight_gradient.operations;
    all += cost.weight_gradient.operations + cost.data_gradient.operations;
  }
  return all > 0 ? weights / all : 0;
}

/// Steps of a measured tape that belong to a network, or a stage of the one that was measured. A
/// step that names no node belongs to the stage of the one before.
TimedTape of_pace(const nn::Network& network, std::size_t rows, Precision, const MeasuredPace& pace,
                  const TapeOf& of) {
  const nn::Network& whole = of.whole ? *of.whole : network;
  const auto other = [&](const std::string& what) {
    return InputError(fmt::format("{}: its tape is of {} and does not fit {}: {}", pace.origin,
                                  pace.model, whole.name, what));
  };
  std::map<std::string, std::size_t> waiting;
  std::set<std::string> elsewhere;
  const nn::ArenaLayout layout = plain_layout(network), all = plain_layout(whole);
  for (const nn::Slice& slice : all.slices) elsewhere.insert(slice.tensor.name);
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    waiting[layout.slices[s].tensor.name] = s;
    elsewhere.erase(layout.slices[s].tensor.name);
  }
  const double factor = static_cast<double>(rows) / static_cast<double>(pace.rows);
  TimedTape tape;
  tape.update_ms =
      pace.update_ms * static_cast<double>(layout.size) / static_cast<double>(all.size);
  bool inside = network.nodes.front().op != nn::Op::receive;
  for (std::size_t i = 0; i < pace.tape.size(); ++i) {
    const MeasuredPace::Step& measured = pace.tape[i];
    if (i == pace.forward_steps) inside = network.nodes.back().op != nn::Op::send;
    const std::vector<std::size_t> own = nodes_of_step(network, measured.name);
    if (!own.empty() || !nodes_of_step(whole, measured.name).empty()) inside = !own.empty();
    TimedStep step{measured.name, measured.ms * factor, {}};
    for (const std::string& tensor : measured.final_tensors) {
      if (elsewhere.erase(tensor) > 0) continue;
      const auto found = waiting.find(tensor);
      if (found == waiting.end()) throw other(tensor + " is not there, or there twice");
      step.final_slices.push_back(found->second);
      waiting.erase(found);
    }
    if (i >= pace.forward_steps) step.weights_ms = step.ms * weights_share(network, own);
    if (inside) (i < pace.forward_steps ? tape.forward : tape.backward).push_back(std::move(step));
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

std::vector<std::size_t> nodes_of_step(const nn::Network& network, const std::string& name) {
  std::vector<std::size_t> nodes;
  const std::string all = name.substr(0, name.find(' '));
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('+', at), all.size());
    for (std::size_t n = 0; n < network.nodes.size(); ++n)
      if (all.compare(at, end - at, network.nodes[n].name) == 0) nodes.push_back(n);
    at = end + 1;
  }
  return nodes;
}

nn::ArenaLayout plain_layout(const nn::Network& network) {
  return nn::arena_layout(network, [](const nn::Tensor& tensor) { return tensor.count(); });
}

TimedTape time_tape(const nn::Network& network, std::size_t rows, Precision precision,
                    const Pace& pace, const TapeOf& of) {
  return std::visit([&](const auto& one) { return of_pace(network, rows, precision, one, of); },
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
