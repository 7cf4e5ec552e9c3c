#include "ports/cuda/plan/plan.hpp"

#include <algorithm>

#include "lockstep/backend/memory_plan.hpp"
#include "lockstep/base/error.hpp"
#include "ports/cuda/plan/fusion.hpp"

namespace lockstep::cuda {

namespace {

constexpr std::size_t alignment = 256;  // bytes: what cudaMalloc gives and cuDNN prefers

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// Plans one program: first kernels, then lifetimes, then places. Places hold buffer numbers until
/// all lifetimes are known.
class Planning {
 public:
  Planning(const nn::Network& network, const backend::ProgramSpec& spec, ConvPlanner& planner)
      : network_(network), spec_(spec), planner_(planner) {
    plan_.storage = storage_of(spec.precision);
    plan_.training = spec.training;
    for (Unit& unit : lower(network)) {
      PlannedUnit planned;
      planned.shape = shape_of(unit);
      planned.unit = std::move(unit);
      plan_.units.push_back(std::move(planned));
    }
  }

  ProgramPlan run() {
    const std::vector<ConvFusion> fusions = choose_fusions(network_, units(), spec_, planner_);
    for (std::size_t u = 0; u < count(); ++u) choose_plans(plan_.units[u], fusions[u]);
    for (std::size_t u = 0; u < count(); ++u) keep_values(u);
    if (plan_.training)
      for (std::size_t u = count(); u-- > 1;) keep_gradients(u);
    memory_.place();
    for (PlannedUnit& p : plan_.units) resolve(p);
    plan_.block = memory_.total();
    plan_.without_reuse = memory_.without_reuse();
    return std::move(plan_);
  }

 private:
  std::size_t count() const { return plan_.units.size(); }
  std::size_t forward_time(std::size_t u) const { return u; }
  std::size_t backward_time(std::size_t u) const { return 2 * count() - 1 - u; }
  /// When the unit is done with what it needs in backward, or in forward if there is no backward.
  std::size_t last_time(std::size_t u) const {
    return plan_.training ? backward_time(u) : forward_time(u);
  }

  Matrix shape_of(const Unit& unit) const {
    const bool head = unit.kind == UnitKind::head;
    const std::size_t node = head ? plan_.units[unit.input].unit.value : unit.value;
    const nn::Shape& shape = network_.nodes[node].shape;
    const std::size_t channels =
        unit.kind == UnitKind::image ? padded_image_channels(shape.channels) : shape.channels;
    return {spec_.batch * shape.height * shape.width, static_cast<int>(channels)};
  }

  // ---- kernels ----------------------------------------------------------------------------------

  void need_workspace(std::size_t bytes) { plan_.workspace = std::max(plan_.workspace, bytes); }

  void choose_plans(PlannedUnit& p, const ConvFusion& fusion) {
    if (p.unit.kind == UnitKind::conv || p.unit.kind == UnitKind::head)
      p.conv = plan_conv(p, fusion);
    if (p.unit.kind != UnitKind::norm) return;
    need_workspace(norm_scratch(p.shape));
    plan_.tickets = std::max(plan_.tickets, norm_tickets(p.shape));
  }

  std::vector<Unit> units() const {
    std::vector<Unit> all;
    for (const PlannedUnit& p : plan_.units) all.push_back(p.unit);
    return all;
  }

  PlannedConv plan_conv(const PlannedUnit& p, const ConvFusion& fusion) {
    PlannedConv conv;
    conv.fusion = fusion;
    const Unit& input = plan_.units[p.unit.input].unit;
    for (const ConvRequest& request : conv_requests(network_, p.unit, input, spec_, fusion)) {
      conv.shape = request.shape;
      conv.precision = request.precision;
      const ConvPlan& plan = planner_.plan(request);
      std::size_t scratch = 0;
      switch (request.pass) {
        case Pass::forward:
          conv.forward = &plan;
          break;
        case Pass::data_gradient:
          conv.data_gradient = &plan;
          break;
        case Pass::weight_gradient:
          conv.weight_gradient = &plan;
          conv.gradient_scratch = scratch =
              aligned(conv.shape.weight_count() * bytes_of(storage_of(conv.precision)));
          break;
      }
      need_workspace(scratch + plan.workspace());
    }
    return conv;
  }

  // ---- lifetimes --------------------------------------------------------------------------------

  std::size_t bytes(const Matrix& shape) const { return shape.count() * bytes_of(plan_.storage); }

  /// The last time that a unit reads the value of unit u.
  std::size_t last_read(std::size_t u) const {
    const PlannedUnit& p = plan_.units[u];
    std::size_t last = forward_time(u);
    for (const std::size_t reader : p.unit.readers) {
      const Unit& r = plan_.units[reader].unit;
      const bool again = r.kind == UnitKind::conv || (r.kind == UnitKind::norm && r.input == u);
      last = std::max(last, again ? last_time(reader) : forward_time(reader));
    }
    // After a sum, the output itself shows where the ReLU let values through.
    if (p.unit.kind == UnitKind::norm && p.unit.relu && p.unit.skip)
      last = std::max(last, last_time(u));
    return last;
  }

  std::size_t channel_bytes(const Matrix& shape) const {
    return sizeof(float) * static_cast<std::size_t>(shape.channels);
  }

  bool applied_by_its_reader(const PlannedUnit& p) const {
    const PlannedUnit& reader = plan_.units[p.unit.readers.at(0)];
    return p.unit.kind == UnitKind::norm && reader.conv && reader.conv->fusion.normalised;
  }

  void keep_values(std::size_t u) {
    PlannedUnit& p = plan_.units[u];
    const std::size_t now = forward_time(u), end = last_time(u);
    if (p.unit.kind == UnitKind::head) return keep_head(p, now, end);
    if (!applied_by_its_reader(p)) p.value = memory_.add(bytes(p.shape), now, last_read(u));
    if (p.conv && p.conv->fusion.sums)
      p.sums = memory_.add(2 * channel_bytes(p.shape), now, forward_time(p.unit.readers[0]));
    if (p.conv && p.conv->fusion.normalised)
      p.gradient_sums =
          memory_.add(gradient_sum_arrays * channel_bytes(plan_.units[p.unit.input].shape), end,
                      backward_time(p.unit.input));
    if (p.unit.kind == UnitKind::norm)
      p.extra = memory_.add(norm_channel_arrays * channel_bytes(p.shape), now, end);
    if (p.unit.kind == UnitKind::max_pool) p.extra = memory_.add(p.shape.count(), now, end);
  }

  void keep_head(PlannedUnit& p, std::size_t now, std::size_t end) {
    HeadPlaces& head = p.head;
    const std::size_t pooled = spec_.batch * p.conv->shape.channels * sizeof(float);
    const std::size_t logits = spec_.batch * network_.classes * sizeof(float);
    head.pooled = memory_.add(pooled, now, end);
    // Kept until the host has copied them.
    head.logits = memory_.add(logits, now, std::max(now, last_time(0)));
    head.row_metrics = memory_.add(spec_.batch * sizeof(RowMetrics), now, now);
    if (!plan_.training) return;
    head.dlogits = memory_.add(logits, now, end);
    head.dpooled = memory_.add(pooled, end, end);
  }

  /// In backward order: all readers of u's value have made their gradients.
  void keep_gradients(std::size_t u) {
    PlannedUnit& p = plan_.units[u];
    for (const std::size_t reader : p.unit.readers) {
      const PlannedUnit& r = plan_.units[reader];
      p.gradients.push_back(r.unit.input == u ? r.input_gradient : r.skip_gradient);
    }
    const PlannedUnit& input = plan_.units[p.unit.input];
    if (input.unit.kind == UnitKind::image) return;
    const std::size_t read = backward_time(p.unit.input);
    if (p.unit.kind == UnitKind::norm) {
      p.input_gradient = input.value;
      if (p.unit.skip) p.skip_gradient = p.gradients[0];
    } else {
      p.input_gradient = memory_.add(bytes(input.shape), backward_time(u), read);
    }
    memory_.keep_alive(p.input_gradient, read);
    if (p.unit.skip) memory_.keep_alive(p.skip_gradient, backward_time(*p.unit.skip));
  }

  void resolve(PlannedUnit& p) const {
    const auto to_offset = [&](Place& place) {
      if (place != nowhere) place = memory_.offset(place);
    };
    for (Place* place : {&p.value, &p.extra, &p.sums, &p.gradient_sums, &p.head.pooled,
                         &p.head.logits, &p.head.dlogits, &p.head.dpooled, &p.head.row_metrics,
                         &p.input_gradient, &p.skip_gradient})
      to_offset(*place);
    for (Place& place : p.gradients) to_offset(place);
  }

  const nn::Network& network_;
  const backend::ProgramSpec& spec_;
  ConvPlanner& planner_;
  backend::MemoryPlanner memory_{alignment};
  ProgramPlan plan_;
};

}  // namespace

Storage storage_of(backend::Precision precision) {
  switch (precision) {
    case backend::Precision::fp32:
    case backend::Precision::tf32:
      return Storage::fp32;
    case backend::Precision::bf16:
      return Storage::bf16;
    case backend::Precision::fp16:
      return Storage::fp16;
  }
  throw Error("a precision without a storage");
}

backend::Precision head_precision(backend::Precision precision) {
  return precision == backend::Precision::tf32 ? backend::Precision::tf32
                                               : backend::Precision::fp32;
}

std::size_t bytes_of(Storage storage) { return storage == Storage::fp32 ? 4 : 2; }

std::vector<ConvRequest> conv_requests(const nn::Network& network, const Unit& unit,
                                       const Unit& input, const backend::ProgramSpec& spec,
                                       const ConvFusion& fusion) {
  ConvRequest request;
  request.shape = conv_shape(network, unit.node, spec.batch);
  request.precision = unit.kind == UnitKind::head ? head_precision(spec.precision) : spec.precision;
  request.deterministic = spec.deterministic;
  request.measured = !spec.plan_cache.empty();
  std::vector<ConvRequest> requests;
  for (const Pass pass : {Pass::forward, Pass::data_gradient, Pass::weight_gradient}) {
    if (pass != Pass::forward && !spec.training) continue;
    if (pass == Pass::data_gradient && input.kind == UnitKind::image) continue;
    request.pass = pass;
    request.fusion = {fusion.normalised, fusion.sums && pass == Pass::forward};
    requests.push_back(request);
  }
  return requests;
}

std::vector<ConvFusion> choose_fusions(const nn::Network& network, const std::vector<Unit>& units,
                                       const backend::ProgramSpec& spec, ConvPlanner& planner) {
  const bool wanted =
      spec.fuse_norms && spec.training && spec.precision == backend::Precision::fp16;
  return fuse_norms(units, [&](std::size_t u, const ConvFusion& fusion) {
    if (!wanted) return false;
    const auto requests = conv_requests(network, units[u], units[units[u].input], spec, fusion);
    return std::all_of(requests.begin(), requests.end(),
                       [&](const ConvRequest& request) { return planner.possible(request); });
  });
}

ProgramPlan plan_program(const nn::Network& network, const backend::ProgramSpec& spec,
                         ConvPlanner& planner) {
  check(spec.batch > 0, "a program needs at least one row");
  require(spec.recompute.mode == backend::Recompute::Mode::none,
          "recompute = " + to_string(spec.recompute) +
              " needs the CPU backend: on a GPU backward keeps all values");
  require(spec.slots == 1, "on a GPU one micro-batch is in flight at a time");
  return Planning(network, spec, planner).run();
}

}  // namespace lockstep::cuda
