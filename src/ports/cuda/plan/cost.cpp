#include "ports/cuda/plan/cost.hpp"

#include <algorithm>

#include "ports/cuda/parameters.hpp"

namespace lockstep::cuda {

namespace {

/// Operations, and bytes if each kernel of a step reads and writes everything once.
struct StepCost {
  std::string name;
  double flops = 0, bytes = 0;
  backend::Precision precision = backend::Precision::fp32;  ///< of the operations
};

class Costs {
 public:
  Costs(const nn::Network& network, const ProgramPlan& plan) : network_(network), plan_(plan) {}

  StepCost forward(const PlannedUnit& p) const {
    const double in = input_bytes(p), out = bytes(p.shape);
    switch (p.unit.kind) {
      case UnitKind::image:
        return {p.unit.name, 2 * count(p.shape),
                static_cast<double>(p.shape.rows * network_.input.channels) + out};
      case UnitKind::conv:
        return conv(p, p.unit.name);
      case UnitKind::norm: {  // statistics, then apply; a convolution may have done either
        const double statistics = plan_.units[p.unit.input].sums == nowhere ? in : 0;
        const double apply = p.value == nowhere ? 0 : in + (p.unit.skip ? out : 0) + out;
        return {p.unit.name, 7 * count(p.shape), statistics + apply};
      }
      case UnitKind::max_pool:
        return {p.unit.name, 9 * count(p.shape), in + out + count(p.shape)};
      case UnitKind::subsample:
        return {p.unit.name, 0, in / 4 + out};
      case UnitKind::head: {
        StepCost cost = conv(p, p.unit.name);
        cost.bytes += in;
        return cost;
      }
    }
    return {};
  }

  std::vector<StepCost> backward(const PlannedUnit& p) const {
    const double in = input_bytes(p), out = bytes(p.shape);
    const double gradients = static_cast<double>(p.gradients.size()) * out;
    const std::string data = p.unit.name + " data gradient",
                      weights = p.unit.name + " weight gradient";
    switch (p.unit.kind) {
      case UnitKind::image:
        return {};
      case UnitKind::conv:
        if (!p.conv->data_gradient) return {conv(p, weights)};
        return {data_gradient(p, data), conv(p, weights)};
      case UnitKind::norm: {
        // After a convolution that applied the batch norm, only the input's gradient remains to be
        // made.
        if (p.value == nowhere) return {{p.unit.name + " gradient", 4 * count(p.shape), 3 * in}};
        // Sums over x and g; then dx from them. After a sum, g is written once and read again.
        const double twice = p.unit.skip ? gradients + out + out + out : 2 * gradients;
        return {{p.unit.name + " gradient", 14 * count(p.shape), 2 * in + twice + in}};
      }
      case UnitKind::max_pool:
        return {{data, 4 * count(p.shape), gradients + count(p.shape) + in}};
      case UnitKind::subsample:
        return {{data, 0, gradients / 2 + in}};
      case UnitKind::head: {
        StepCost spread = conv(p, data);
        spread.bytes += in;
        return {spread, conv(p, weights)};
      }
    }
    return {};
  }

 private:
  static double count(const Matrix& shape) { return static_cast<double>(shape.count()); }
  double bytes(const Matrix& shape) const {
    return count(shape) * static_cast<double>(bytes_of(plan_.storage));
  }
  double input_bytes(const PlannedUnit& p) const { return bytes(plan_.units[p.unit.input].shape); }

  static StepCost conv(const PlannedUnit& p, std::string name) {
    const ConvShape& s = p.conv->shape;
    const std::size_t values = s.input_count() + s.output_count() + s.weight_count();
    return {std::move(name), s.flops(),
            static_cast<double>(values * bytes_of(storage_of(p.conv->precision))),
            p.conv->precision};
  }

  /// A fused data gradient ends before the previous ReLU and also reads the input of its batch
  /// norm.
  StepCost data_gradient(const PlannedUnit& p, std::string name) const {
    StepCost cost = conv(p, std::move(name));
    if (p.conv->fusion.normalised) cost.bytes += input_bytes(p);
    return cost;
  }

  const nn::Network& network_;
  const ProgramPlan& plan_;
};

std::vector<StepCost> tape_costs(const nn::Network& network, const ProgramPlan& plan) {
  const Costs costs(network, plan);
  std::vector<StepCost> tape;
  for (const PlannedUnit& p : plan.units) tape.push_back(costs.forward(p));
  if (!plan.training) return tape;
  for (std::size_t u = plan.units.size(); u-- > 0;)
    for (StepCost& cost : costs.backward(plan.units[u])) tape.push_back(std::move(cost));
  return tape;
}

/// One update of the whole arena of `weights` floats.
StepCost update_cost(std::size_t weights, Storage storage) {
  const double copies = storage == Storage::fp32 ? 0 : static_cast<double>(bytes_of(storage));
  const double floats = static_cast<double>(weights);
  return {"update", 6 * floats, floats * (5 * sizeof(float) + copies)};
}

}  // namespace

std::vector<backend::StepFloor> floors(const nn::Network& network, const ProgramPlan& plan,
                                       const std::optional<backend::GpuRates>& rates) {
  std::vector<StepCost> costs = tape_costs(network, plan);
  if (plan.training) costs.push_back(update_cost(arena_layout(network).learned_size, plan.storage));
  std::vector<backend::StepFloor> steps;
  for (StepCost& cost : costs) {
    backend::StepFloor step{std::move(cost.name), cost.flops, cost.bytes};
    if (rates)
      step.shortest_ms =
          1e3 * std::max(cost.flops / rates->of(cost.precision), cost.bytes / rates->bandwidth);
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace lockstep::cuda
