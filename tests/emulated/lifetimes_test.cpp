// Where a program on a GPU keeps what, when values are made again and micro-batches are in flight.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "lockstep/nn/partition.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cuda/plan/plan.hpp"
#include "ports/cuda/runtime/stream.hpp"
#include "tests/support/networks/chains.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::cuda;

namespace {

/// Runs a plan's tape without numbers: each step says what it reads and writes, and a read must
/// find what was written for it. Derived from what each kernel does, without a look at lifetimes.
class Rehearsal {
 public:
  explicit Rehearsal(const ProgramPlan& plan)
      : plan_(plan), holds_(plan.block / 16), each_(bytes_of(plan.storage)) {}

  /// Each slot runs forward, then backward, in this order: forward of all, then backward of all.
  std::vector<std::string> run() {
    for (slot_ = 0; slot_ < plan_.offsets.size(); ++slot_) {
      later_ = false;
      if (plan_.received.values != nowhere)
        write(plan_.received.values, plan_.received.bytes, "value", 0);
      for (std::size_t u = 0; u < plan_.units.size(); ++u) forward(u, false);
    }
    for (slot_ = 0; plan_.sent.values != nowhere && slot_ < plan_.offsets.size(); ++slot_)
      read_value(plan_.units.back().unit.input);
    for (slot_ = 0; plan_.training && slot_ < plan_.offsets.size(); ++slot_) {
      later_ = true;
      const BoundaryPlaces& sent = plan_.sent;
      for (std::size_t i = 0; sent.gradients != nowhere && i < sent.readers; ++i)
        write(plan_.units[plan_.units.back().unit.input].gradients[i], sent.bytes, "gradient",
              plan_.units.size() + i);
      for (const auto& [unit, again] : plan_.after_forward)
        again ? forward(unit, true) : backward(unit);
    }
    for (slot_ = 0; plan_.received.gradients != nowhere && slot_ < plan_.offsets.size(); ++slot_)
      read(plan_.received.gradients, plan_.received.bytes, "received gradients", 0);
    return std::move(faults_);
  }

 private:
  struct Content {
    std::string what;
    std::size_t unit = 0, slot = 0;
    bool operator==(const Content&) const = default;
  };

  std::size_t size(const PlannedUnit& p) const { return p.shape.count() * each_; }
  /// Its backward reads bits that say where its ReLU let values through: one for each value, in
  /// bytes for 16 bytes of values.
  static bool is_masked(const PlannedUnit& p) {
    return p.unit.kind == UnitKind::norm && p.unit.relu && p.unit.skip;
  }
  static std::size_t channels(const PlannedUnit& p) {
    return static_cast<std::size_t>(p.shape.channels);
  }

  void write(Place place, std::size_t bytes, const char* what, std::size_t unit) {
    const std::size_t at = plan_.offset(place, later_, slot_);
    if (at % 16 != 0 || at + bytes > plan_.block)
      faults_.push_back(std::string(what) + " is outside");
    for (std::size_t b = at / 16; b * 16 < std::min(at + bytes, plan_.block); ++b)
      holds_[b] = {what, unit, slot_};
  }
  void read(Place place, std::size_t bytes, const char* what, std::size_t unit) {
    const std::size_t at = plan_.offset(place, later_, slot_);
    for (std::size_t b = at / 16; b * 16 < at + bytes; ++b) {
      if (holds_[b] == Content{what, unit, slot_}) continue;
      const bool inside = unit < plan_.units.size();
      faults_.push_back(std::string(what) + " of " +
                        (inside ? plan_.units[unit].unit.name : "send") + " is not there, but " +
                        holds_[b].what);
      return;
    }
  }
  void read_value(std::size_t u) {
    const PlannedUnit& p = plan_.units[u];
    if (p.value != nowhere) return read(p.value, size(p), "value", u);
    read(p.extra, 36 * channels(p), "moments", u);  // its reader applies it
    read_value(p.unit.input);
  }
  /// From the units that read it.
  void read_gradients(std::size_t u) {
    const PlannedUnit& p = plan_.units[u];
    std::size_t i = 0;
    for (const Place gradient : p.gradients) {
      const bool received = plan_.units[p.unit.readers[0]].unit.kind == UnitKind::send;
      read(gradient, size(p), "gradient", received ? plan_.units.size() + i : p.unit.readers[i]);
      ++i;
    }
  }

  void forward(std::size_t u, bool again) {
    const PlannedUnit& p = plan_.units[u];
    if (again) CHECK(runs_forward(p.unit.kind));
    if (!runs_forward(p.unit.kind)) return;
    if (p.unit.kind != UnitKind::image) read_value(p.unit.input);
    if (p.unit.kind == UnitKind::head) return write(p.head.pooled, 16, "pooled", u);
    if (p.unit.skip) read_value(*p.unit.skip);
    if (p.unit.kind == UnitKind::norm) {
      const PlannedUnit& conv = plan_.units[p.unit.input];
      if (conv.sums != nowhere && !again) read(conv.sums, 8 * channels(conv), "sums", p.unit.input);
      again ? read(p.extra, 36 * channels(p), "moments", u)
            : write(p.extra, 36 * channels(p), "moments", u);
    }
    if (is_masked(p) && plan_.training) write(p.mask, size(p) / 16, "mask", u);
    if (p.unit.kind == UnitKind::max_pool) write(p.extra, p.shape.count(), "index", u);
    if (p.sums != nowhere) write(p.sums, 8 * channels(p), "sums", u);
    if (p.value != nowhere) write(p.value, size(p), "value", u);
  }

  void backward(std::size_t u) {
    const PlannedUnit& p = plan_.units[u];
    if (p.unit.kind == UnitKind::image || p.unit.kind == UnitKind::send) return;
    if (p.unit.kind == UnitKind::head) read(p.head.pooled, 16, "pooled", u);
    const bool fused = p.unit.kind == UnitKind::norm && sums_of_gradient(plan_, p) != nowhere;
    read_gradients(u);
    if (p.unit.kind == UnitKind::receive)
      write(plan_.received.gradients, p.gradients.size() * size(p), "received gradients", u);
    if (fused) read(sums_of_gradient(plan_, p), 20 * channels(p), "sums", u);
    if (p.unit.kind == UnitKind::conv || p.unit.kind == UnitKind::norm) read_value(p.unit.input);
    if (is_masked(p)) read(p.mask, size(p) / 16, "mask", u);
    if (p.unit.kind == UnitKind::norm) read(p.extra, 36 * channels(p), "moments", u);
    if (p.unit.kind == UnitKind::max_pool) read(p.extra, p.shape.count(), "index", u);
    if (p.gradient_sums != nowhere) {
      read_value(plan_.units[p.unit.input].unit.input);
      write(p.gradient_sums, 20 * channels(plan_.units[p.unit.input]), "sums", p.unit.input);
    }
    if (p.unit.skip) write(p.skip_gradient, size(p), "gradient", u);
    if (p.input_gradient != nowhere)
      write(p.input_gradient, size(plan_.units[p.unit.input]), "gradient", u);
  }

  const ProgramPlan& plan_;
  std::vector<Content> holds_;  // by 16 bytes
  std::size_t each_, slot_ = 0;
  bool later_ = false;
  std::vector<std::string> faults_;
};

nn::Network small(const char* model, std::size_t side) {
  return nn::resnet(nn::usual_resnet(model, side, 10));
}

}  // namespace

TEST_CASE(
    "each step of a GPU's tape finds what was written for it, made again, in slots, in stages",
    "[backend][lifetimes]") {
  const CudaStream stream;
  ConvPlanner planner(stream);
  std::vector<nn::Network> networks = test::all_sketches();
  for (const char* model : {"resnet20", "resnet18", "resnet50"})
    networks.push_back(small(model, 32));
  const nn::Network whole = small("resnet20", 32);
  const auto cuts = cut_units(whole, lower(whole), std::vector<bool>(lower(whole).size(), false));
  for (nn::Network& stage :
       nn::split(whole, {lower(whole)[cuts[3]].value, lower(whole)[cuts[7]].value}))
    networks.push_back(std::move(stage));
  std::size_t made_again = 0;
  for (const nn::Network& network : networks)
    for (const std::size_t segments : {0u, 2u, 3u})
      for (const std::size_t slots : {1u, 3u})
        for (const bool fused : {false, true}) {
          ProgramSpec spec;
          spec.batch = 2;
          spec.precision = Precision::fp16;
          spec.slots = slots;
          spec.fuse_norms = fused;
          const auto possible =
              cut_units(network, lower(network), std::vector<bool>(lower(network).size()));
          if (segments > possible.size()) continue;
          if (segments > 0)
            spec.recompute = {.mode = Recompute::Mode::segments, .segments = segments};
          const ProgramPlan plan = plan_program(network, spec, planner);
          INFO(network.name << ", " << segments << " segments, " << slots << " slots"
                            << (fused ? ", fused" : ""));
          CHECK(Rehearsal(plan).run() == std::vector<std::string>());
          made_again += plan.made_again > 0;
        }
  CHECK(made_again > 20);
}

TEST_CASE("each step of an evaluation on a GPU finds what was written for it",
          "[backend][lifetimes]") {
  const CudaStream stream;
  ConvPlanner planner(stream);
  std::vector<nn::Network> networks = test::all_sketches();
  for (const char* model : {"resnet20", "resnet50"}) networks.push_back(small(model, 32));
  for (const nn::Network& network : networks)
    for (const Precision precision : {Precision::fp32, Precision::fp16}) {
      ProgramSpec spec;
      spec.batch = 2;
      spec.precision = precision;
      spec.training = false;
      INFO(network.name << " in " << to_string(precision));
      CHECK(Rehearsal(plan_program(network, spec, planner)).run() == std::vector<std::string>());
    }
}

TEST_CASE("the costs of a GPU's spans add up to the memory of any plan, and its plan is the best",
          "[backend][lifetimes]") {
  for (const char* model : {"resnet20", "resnet18"}) {
    const nn::Network network = small(model, 32);
    const std::vector<Unit> units = lower(network);
    std::vector<BufferRequest> requests;  // each unit's value and its gradient
    for (std::size_t u = 0; u + 1 < units.size(); ++u) {
      const std::size_t bytes = 4 * network.nodes[units[u].value].shape.count();
      const std::size_t last = units[u].readers.back();
      BufferRequest value{.bytes = bytes, .unit = u, .last_forward = last, .repeated = true};
      if (units[u].kind == UnitKind::conv) value.last_backward = u;
      for (const std::size_t reader : units[u].readers)
        if (!value.last_backward && units[reader].kind == UnitKind::conv)
          value.last_backward = reader;
      requests.push_back(value);
      if (units[u].kind == UnitKind::norm)
        requests.push_back({.bytes = 64, .unit = u, .last_forward = u, .last_backward = u});
      requests.push_back({.bytes = bytes, .unit = last, .of_backward = true, .last_backward = u});
    }
    cuda::Lifetimes lifetimes(network, units, requests, std::vector<bool>(units.size()), true);
    const Chain chain(lifetimes.segments(), [&](const Span& span) { return lifetimes.cost(span); });
    test::check_plans(chain, [&](const test::Spans& way) {
      lifetimes.choose(way);
      return lifetimes.peak();
    });
  }
}
