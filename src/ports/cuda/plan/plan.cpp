#include "ports/cuda/plan/plan.hpp"

#include <algorithm>

#include "lockstep/backend/placement.hpp"
#include "lockstep/base/error.hpp"
#include "ports/cuda/plan/fusion.hpp"

namespace lockstep::cuda {

namespace {

/// Plans one program: first kernels, then buffers, then what is made again and all places.
class Planning {
 public:
  Planning(const nn::Network& network, const backend::ProgramSpec& spec, ConvPlanner& planner)
      : network_(network), spec_(spec), planner_(planner), units_(lower(network)) {
    plan_.storage = storage_of(spec.precision);
    plan_.training = spec.training;
    plan_.batch = spec.batch;
    plan_.fold = image_fold(network, spec.precision);
    for (const Unit& unit : units_) {
      PlannedUnit planned;
      planned.shape = shape_of(unit);
      planned.unit = unit;
      plan_.units.push_back(std::move(planned));
    }
  }

  ProgramPlan run(std::size_t available) {
    const std::vector<ConvFusion> fusions = choose_fusions(network_, units_, spec_, planner_);
    for (std::size_t u = 0; u < count(); ++u) choose_plans(plan_.units[u], fusions[u]);
    for (std::size_t u = 0; u < count(); ++u) keep_values(u);
    if (plan_.training)
      for (std::size_t u = count(); u-- > 1;) keep_gradients(u);
    if (plan_.training) receive_gradients();
    place(available);
    return std::move(plan_);
  }

 private:
  std::size_t count() const { return plan_.units.size(); }

  Matrix shape_of(const Unit& unit) const {
    if (unit.kind == UnitKind::image && plan_.fold)
      return {spec_.batch * plan_.fold->folded_pixels(), plan_.fold->folded_channels()};
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

  PlannedConv plan_conv(const PlannedUnit& p, const ConvFusion& fusion) {
    PlannedConv conv;
    conv.fusion = fusion;
    const Unit& input = plan_.units[p.unit.input].unit;
    if (input.kind == UnitKind::image) conv.fold = plan_.fold;
    for (const ConvRequest& request : conv_requests(network_, p.unit, input, spec_, fusion)) {
      conv.shape = request.shape;
      conv.precision = request.precision;
      const ConvPlan& plan = planner_.plan(request);
      const std::size_t weights =
          aligned(conv.shape.weight_count() * bytes_of(storage_of(conv.precision)));
      std::size_t scratch = 0;
      switch (request.pass) {
        case Pass::forward:
          conv.forward = &plan;
          if (conv.fold) conv.weights_scratch = scratch = weights;
          break;
        case Pass::data_gradient:
          conv.data_gradient = &plan;
          break;
        case Pass::weight_gradient:
          conv.weight_gradient = &plan;
          conv.gradient_scratch = scratch = weights;
          break;
      }
      need_workspace(scratch + plan.workspace());
    }
    return conv;
  }

  // ---- buffers ----------------------------------------------------------------------------------

  std::size_t bytes(const Matrix& shape) const { return shape.count() * bytes_of(plan_.storage); }

  Place add(const BufferRequest& request) {
    requests_.push_back(request);
    places_.push_back({requests_.size() - 1, 0});
    return places_.size() - 1;
  }
  /// A part of what another place begins.
  Place part(Place whole, std::size_t from) {
    places_.push_back({places_[whole].request, places_[whole].from + from});
    return places_.size() - 1;
  }
  /// What only the forward of one unit uses, or what that leaves to its own backward.
  Place add_own(std::size_t u, std::size_t size, bool is_kept, bool repeated) {
    BufferRequest request{.bytes = size, .unit = u, .last_forward = u, .repeated = repeated};
    if (is_kept) request.last_backward = u;
    return add(request);
  }
  /// From the backward of one unit to that of an earlier one.
  Place add_of_backward(std::size_t u, std::size_t size, std::size_t last) {
    return add({.bytes = size, .unit = u, .of_backward = true, .last_backward = last});
  }

  BufferRequest value_of(std::size_t u) const {
    const PlannedUnit& p = plan_.units[u];
    BufferRequest value{.bytes = bytes(p.shape), .unit = u, .last_forward = u, .repeated = true};
    const auto reads_again = [&](std::size_t unit) {
      value.last_backward = std::min(unit, value.last_backward.value_or(unit));
    };
    for (const std::size_t reader : p.unit.readers) {
      const Unit& r = units_[reader];
      value.last_forward = std::max(value.last_forward, reader);
      if (r.kind == UnitKind::conv) reads_again(reader);
      if (r.kind != UnitKind::norm || r.input != u) continue;
      reads_again(u);  // the batch norm's input gradient takes the place of its input
      // A convolution that applies the batch norm reads its input.
      if (applied_by_its_reader(plan_.units[reader]))
        value.last_forward = std::max(value.last_forward, r.readers[0]);
    }
    return value;
  }

  std::size_t channel_bytes(const Matrix& shape) const {
    return sizeof(float) * static_cast<std::size_t>(shape.channels);
  }

  /// By a convolution; or by the batch norm that adds this one as its skip, if no other unit reads
  /// it.
  bool applied_by_its_reader(const PlannedUnit& p) const {
    if (p.unit.kind != UnitKind::norm) return false;
    const PlannedUnit& reader = plan_.units[p.unit.readers.at(0)];
    if (reader.conv) return reader.conv->fusion.normalised;
    return p.unit.readers.size() == 1 && !p.unit.relu && !p.unit.skip && reader.unit.skip &&
           &plan_.units[*reader.unit.skip] == &p;
  }

  /// Whether the reader of a batch norm reads what is before it, in forward or backward.
  bool read_past(const PlannedUnit& p) const {
    return applied_by_its_reader(p) ||
           (p.unit.kind == UnitKind::norm && sums_of_gradient(plan_, p) != nowhere);
  }

  void keep_values(std::size_t u) {
    PlannedUnit& p = plan_.units[u];
    if (p.unit.kind == UnitKind::head) return keep_head(p, u);
    if (p.unit.kind == UnitKind::send) return;
    if (p.unit.kind == UnitKind::receive) {
      const bool returns = wants_gradient(network_, p.unit);
      plan_.received = boundary(u, returns ? p.unit.readers.size() : 0);
      p.value = plan_.received.values;
      return;
    }
    const PlannedUnit& reader = plan_.units[p.unit.readers[0]];
    if (reader.unit.kind == UnitKind::send) {
      plan_.sent = boundary(p.unit.readers[0], network_.nodes[reader.unit.node].gradients);
      p.value = plan_.sent.values;
    } else if (!applied_by_its_reader(p)) {
      p.value = add(value_of(u));
    }
    if (p.conv && p.conv->fusion.sums)
      p.sums = add({.bytes = 2 * channel_bytes(p.shape),
                    .unit = u,
                    .last_forward = p.unit.readers[0],
                    .repeated = true});
    if (p.conv && p.conv->fusion.norm_gradient)
      p.gradient_sums = add_of_backward(
          u, gradient_sum_arrays * channel_bytes(plan_.units[p.unit.input].shape), p.unit.input);
    // A batch norm that runs again takes the moments of the first time.
    if (p.unit.kind == UnitKind::norm)
      p.extra = add({.bytes = norm_channel_arrays * channel_bytes(p.shape),
                     .unit = u,
                     .last_forward = applied_by_its_reader(p) ? p.unit.readers[0] : u,
                     .last_backward = u});
    if (p.unit.kind == UnitKind::norm && p.unit.relu && p.unit.skip && plan_.training)
      p.mask = add_own(u, mask_bytes(p.shape, plan_.storage), true, true);
    if (p.unit.kind == UnitKind::max_pool) p.extra = add_own(u, p.shape.count(), true, true);
  }

  BoundaryPlaces boundary(std::size_t u, std::size_t readers) {
    BoundaryPlaces places{.bytes = bytes(plan_.units[u].shape), .readers = readers};
    places.values = add({.bytes = places.bytes, .unit = u, .always = true});
    if (plan_.training && readers > 0)
      places.gradients = add({.bytes = readers * places.bytes, .unit = u, .always = true});
    return places;
  }

  void keep_head(PlannedUnit& p, std::size_t u) {
    HeadPlaces& head = p.head;
    const std::size_t pooled = spec_.batch * p.conv->shape.channels * sizeof(float);
    const std::size_t logits = spec_.batch * network_.classes * sizeof(float);
    head.pooled = add_own(u, pooled, true, false);
    // Kept until the host has copied them.
    head.logits = add({.bytes = logits, .unit = u, .last_forward = u, .last_backward = 0});
    head.row_metrics = add_own(u, spec_.batch * sizeof(DeviceMetrics), false, false);
    if (!plan_.training) return;
    head.dlogits = add_own(u, logits, true, false);
    if (p.conv->data_gradient) head.dpooled = add_of_backward(u, pooled, u);
  }

  /// In backward order: all readers of u's value have made their gradients.
  void keep_gradients(std::size_t u) {
    PlannedUnit& p = plan_.units[u];
    if (p.unit.kind == UnitKind::send) return;
    collect_gradients(p, u);
    const std::size_t input = p.unit.input;
    if (!wants_gradient(network_, units_[input])) return;
    if (p.unit.kind == UnitKind::norm) {
      p.input_gradient = plan_.units[input].value;
      if (p.unit.skip) p.skip_gradient = p.gradients[0];
    } else {
      p.input_gradient = add_of_backward(u, bytes(plan_.units[input].shape), input);
    }
    if (!p.unit.skip || !wants_gradient(network_, units_[*p.unit.skip])) return;
    BufferRequest& skip = requests_[places_[p.skip_gradient].request];
    if (!skip.always) skip.last_backward = std::min(*skip.last_backward, *p.unit.skip);
  }

  void collect_gradients(PlannedUnit& p, std::size_t u) {
    for (const std::size_t reader : p.unit.readers) {
      const PlannedUnit& r = plan_.units[reader];
      if (r.unit.kind == UnitKind::send)
        for (std::size_t i = 0; i < plan_.sent.readers; ++i)
          p.gradients.push_back(part(plan_.sent.gradients, i * plan_.sent.bytes));
      else
        p.gradients.push_back(r.unit.input == u ? r.input_gradient : r.skip_gradient);
    }
  }

  /// The readers' gradients of what the stage receives.
  void receive_gradients() {
    if (plan_.received.readers > 0) collect_gradients(plan_.units[0], 0);
  }

  // ---- what is made again, and where everything is ----------------------------------------------

  void place(std::size_t available) {
    std::vector<bool> applied;
    for (const PlannedUnit& p : plan_.units) applied.push_back(read_past(p));
    Lifetimes lifetimes(network_, units_, requests_, applied, plan_.training);
    const std::size_t fixed = memory_of(network_, spec_, plan_).total();
    const backend::Placement placement =
        backend::choose_placement(spec_, network_.name, lifetimes, {fixed, available});
    plan_.block = placement.total();
    plan_.without_reuse = placement.without_reuse();
    plan_.after_forward = lifetimes.after_forward();
    plan_.made_again = lifetimes.share_made_again();
    plan_.offsets = placement.offsets();
    for (auto& of_slot : plan_.offsets)
      for (auto& offsets : of_slot) {
        std::vector<std::size_t> of_places;
        for (const auto& [request, from] : places_) of_places.push_back(offsets[request] + from);
        offsets = std::move(of_places);
      }
  }

  /// A buffer, or a part of one.
  struct PlaceInRequest {
    std::size_t request, from;
  };

  const nn::Network& network_;
  const backend::ProgramSpec& spec_;
  ConvPlanner& planner_;
  const std::vector<Unit> units_;
  std::vector<BufferRequest> requests_;
  std::vector<PlaceInRequest> places_;
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
  return precision == backend::Precision::fp32 ? backend::Precision::fp32
                                               : backend::Precision::tf32;
}

std::size_t bytes_of(Storage storage) { return storage == Storage::fp32 ? 4 : 2; }

bool wants_gradient(const nn::Network& network, const Unit& unit) {
  return nn::wants_gradient(network.nodes[unit.node]);
}

std::vector<ConvRequest> conv_requests(const nn::Network& network, const Unit& unit,
                                       const Unit& input, const backend::ProgramSpec& spec,
                                       const ConvFusion& fusion) {
  ConvRequest request;
  const auto fold =
      input.kind == UnitKind::image ? image_fold(network, spec.precision) : std::nullopt;
  request.shape =
      fold ? folded_shape(*fold, spec.batch) : conv_shape(network, unit.node, spec.batch);
  request.precision = unit.kind == UnitKind::head ? head_precision(spec.precision) : spec.precision;
  request.deterministic = spec.deterministic;
  request.measured = !spec.plan_cache.empty();
  std::vector<ConvRequest> requests;
  for (const Pass pass : {Pass::forward, Pass::data_gradient, Pass::weight_gradient}) {
    if (pass != Pass::forward && !spec.training) continue;
    if (pass == Pass::data_gradient && !wants_gradient(network, input)) continue;
    request.pass = pass;
    request.fusion = {.normalised = fusion.normalised && pass != Pass::data_gradient,
                      .sums = fusion.sums && pass == Pass::forward,
                      .norm_gradient = fusion.norm_gradient && pass == Pass::data_gradient};
    requests.push_back(request);
  }
  return requests;
}

ProgramPlan plan_program(const nn::Network& network, const backend::ProgramSpec& spec,
                         ConvPlanner& planner, std::size_t available) {
  check(spec.batch > 0 && spec.slots > 0, "a program needs at least one row and one slot");
  return Planning(network, spec, planner).run(available);
}

}  // namespace lockstep::cuda
