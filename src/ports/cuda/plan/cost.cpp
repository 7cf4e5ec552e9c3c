#include "ports/cuda/plan/plan.hpp"

#include <algorithm>

#include "lockstep/nn/cost.hpp"
#include "ports/cuda/parameters.hpp"

namespace lockstep::cuda {

namespace {

/// Operations, and bytes if each kernel of a step reads and writes everything once.
struct StepCost {
  std::string name;
  double flops = 0, bytes = 0;
  backend::Precision precision = backend::Precision::fp32;  ///< of the operations
};

/// The costs of the tape's steps, from those of their nodes: what a step's nodes pass to each other
/// is neither read nor written.
class Costs {
 public:
  Costs(const nn::Network& network, const ProgramPlan& plan) : network_(network), plan_(plan) {
    of_values_ = {.rows = plan.batch,
                  .value_bytes = bytes_of(plan.storage),
                  .image_channels = padded_image_channels(network.input.channels)};
    of_floats_ = of_values_;
    of_floats_.value_bytes = sizeof(float);
  }

  StepCost forward(const PlannedUnit& p) const {
    const nn::NodeCost cost = node_cost(p);
    switch (p.unit.kind) {
      case UnitKind::image:
      case UnitKind::max_pool:
      case UnitKind::mean_pool:
      case UnitKind::subsample:
        return step(p.unit.name, cost.forward);
      case UnitKind::conv:
        return step(p, p.unit.name, cost.forward);
      case UnitKind::norm: {  // statistics, then apply; a convolution may have done either
        const bool sums = plan_.units[p.unit.input].sums == nowhere, applies = p.value != nowhere;
        return {p.unit.name, cost.statistics.operations + cost.forward.operations,
                (sums ? cost.statistics.bytes() : 0) + (applies ? apply_bytes(p, cost) : 0)};
      }
      case UnitKind::head: {
        StepCost whole = step(p, p.unit.name, cost.forward);
        whole.bytes += value_bytes(p);
        return whole;
      }
      case UnitKind::receive:
      case UnitKind::send:
        break;
    }
    return {};
  }

  /// A batch norm that runs again makes no sums.
  StepCost again(const PlannedUnit& p) const {
    StepCost cost = forward(p);
    if (p.unit.kind == UnitKind::norm) {
      const nn::NodeCost each = node_cost(p);
      cost.flops = each.forward.operations;
      cost.bytes = apply_bytes(p, each);
    }
    cost.name += made_again_suffix;
    return cost;
  }

  std::vector<StepCost> backward(const PlannedUnit& p) const {
    const nn::NodeCost cost = node_cost(p);
    const double more_readers =
        p.gradients.empty() ? 0 : static_cast<double>(p.gradients.size()) - 1;
    const std::string data = p.unit.name + " data gradient",
                      weights = p.unit.name + " weight gradient";
    switch (p.unit.kind) {
      case UnitKind::image:
        return {};
      case UnitKind::conv:
        if (!p.conv->data_gradient) return {step(p, weights, cost.weight_gradient)};
        return {data_gradient(p, data, cost), step(p, weights, cost.weight_gradient)};
      case UnitKind::norm:
        return {norm_gradient(p, cost, more_readers)};
      case UnitKind::max_pool:
      case UnitKind::mean_pool:
      case UnitKind::subsample: {
        StepCost gradient = step(data, cost.data_gradient);
        const double moved =
            p.unit.kind == UnitKind::subsample ? cost.data_gradient.read : value_bytes(p);
        gradient.bytes += more_readers * moved;
        return {gradient};
      }
      case UnitKind::head: {
        StepCost spread = step(p, data, cost.data_gradient);
        spread.bytes += value_bytes(p);
        return {spread, step(p, weights, cost.weight_gradient)};
      }
      case UnitKind::receive: {  // copies what its readers made
        const double copied = 2 * static_cast<double>(p.gradients.size()) * value_bytes(p);
        return {{p.unit.name + " gradients", 0, copied}};
      }
      case UnitKind::send:
        break;
    }
    return {};
  }

 private:
  static StepCost step(std::string name, const nn::PassCost& pass) {
    return {std::move(name), pass.operations, pass.bytes()};
  }
  static StepCost step(const PlannedUnit& p, std::string name, const nn::PassCost& pass) {
    return {std::move(name), pass.operations, pass.bytes(), p.conv->precision};
  }

  /// The head multiplies floats; all else has the program's storage.
  nn::NodeCost node_cost(const PlannedUnit& p) const {
    nn::NodeCost cost =
        nn::cost_of(network_, p.unit.node, p.unit.kind == UnitKind::head ? of_floats_ : of_values_);
    if (plan_.fold) count_folded_bytes(p, cost);
    return cost;
  }
  /// A folded image has other bytes. Operations remain those that the network needs.
  void count_folded_bytes(const PlannedUnit& p, nn::NodeCost& cost) const {
    const PlannedUnit& image = plan_.units[0];
    const double unfolded = nn::cost_of(network_, image.unit.node, of_values_).forward.written;
    const double more = value_bytes(image) - unfolded;
    if (p.unit.kind == UnitKind::image) cost.forward.written += more;
    if (!p.conv || !p.conv->fold) return;
    cost.forward.read += more;
    cost.weight_gradient.read += more;
  }
  double value_bytes(const PlannedUnit& p) const {
    return static_cast<double>(p.shape.count() * bytes_of(plan_.storage));
  }

  /// ReLU's mask, which forward leaves to backward.
  double mask_bytes_of(const PlannedUnit& p) const {
    return p.mask == nowhere ? 0 : static_cast<double>(mask_bytes(p.shape, plan_.storage));
  }
  double apply_bytes(const PlannedUnit& p, const nn::NodeCost& cost) const {
    return cost.forward.bytes() + (p.unit.skip ? value_bytes(p) : 0) + mask_bytes_of(p);
  }

  StepCost norm_gradient(const PlannedUnit& p, const nn::NodeCost& cost,
                         double more_readers) const {
    StepCost gradient = step(p.unit.name + " gradient", cost.data_gradient);
    // After a convolution that made the sums, only the input's gradient remains to be made.
    if (sums_of_gradient(plan_, p) != nowhere) return gradient;
    gradient.flops += cost.weight_gradient.operations;
    gradient.bytes += cost.weight_gradient.bytes();
    // Sums over x and g; then dx from them. After a sum, bits show where the ReLU let values
    // through, and g is written once and read again.
    const double value = value_bytes(p);
    gradient.bytes +=
        p.unit.skip ? (1 + more_readers) * value + mask_bytes_of(p) : 2 * more_readers * value;
    return gradient;
  }

  /// A data gradient that ends before the previous ReLU also reads the input of its batch norm.
  StepCost data_gradient(const PlannedUnit& p, std::string name, const nn::NodeCost& cost) const {
    StepCost whole = step(p, std::move(name), cost.data_gradient);
    if (p.conv->fusion.norm_gradient) whole.bytes += value_bytes(plan_.units[p.unit.input]);
    return whole;
  }

  const nn::Network& network_;
  const ProgramPlan& plan_;
  nn::CostSpec of_values_, of_floats_;
};

std::vector<StepCost> tape_costs(const nn::Network& network, const ProgramPlan& plan) {
  const Costs costs(network, plan);
  std::vector<StepCost> tape;
  for (const PlannedUnit& p : plan.units)
    if (runs_forward(p.unit.kind)) tape.push_back(costs.forward(p));
  for (const Lifetimes::Step& step : plan.after_forward) {
    const PlannedUnit& p = plan.units[step.part];
    if (step.again)
      tape.push_back(costs.again(p));
    else
      for (StepCost& cost : costs.backward(p)) tape.push_back(std::move(cost));
  }
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
