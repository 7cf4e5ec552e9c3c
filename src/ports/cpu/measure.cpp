#include "ports/cpu/program.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "ports/cpu/units/conv/winograd_conv.hpp"

namespace lockstep::cpu {

namespace {

using backend::WinogradPasses;
using dnnl::memory;

/// Memory full of 0x3c: 0.0115 as float, far from denormals.
HostMemory filled(std::size_t bytes) {
  HostMemory made(bytes);
  std::memset(made.data(), 0x3c, bytes);
  return made;
}

/// One convolution on the chunks of its region, by both algorithms.
class Trial {
 public:
  /// `most_rows`: those of a call at most; of bands, which the geometry stands for, 1.
  Trial(const ConvGeometry& geometry, const ConvFormats& formats, const Region& region, Team& team,
        std::size_t lanes, std::size_t most_rows)
      : geometry_(geometry),
        formats_(formats),
        region_(region),
        team_(team),
        lanes_(lanes),
        most_rows_(std::min(most_rows, region.chunk_stripes)),
        winograd_(geometry),
        tap_gradient_(tap_gradient_of(geometry, formats)),
        to_forward_(formats.gradient, formats.forward, lanes),
        to_backward_(formats.gradient, formats.backward_data, lanes),
        weights_(filled(formats.gradient.get_size())),
        copy_(filled(std::max({formats.forward.get_size(), formats.backward_data.get_size(),
                               winograd_.weight_bytes()}))) {
    std::size_t scratch =
        std::max(winograd_.scratch_bytes(most_rows_),
                 tap_gradient_ ? tap_scratch_bytes(geometry.taps()) : std::size_t{0});
    for (const std::size_t count : chunk_sizes(region)) {
      ConvPrimitives& made = primitives_[std::min(count, most_rows_)];
      made = make_conv(geometry, formats, std::min(count, most_rows_), true,
                       {.weight_gradient = tap_gradient_ != nullptr});
      scratch = std::max(scratch, made.scratch_bytes);
    }
    for (std::size_t lane = 0; lane < lanes; ++lane)
      memory_.push_back({filled(geometry.source_bytes() * most_rows_),
                         filled(geometry.destination_bytes() * most_rows_),
                         filled(formats.gradient.get_size()), filled(scratch), scratch});
  }

  WinogradPasses faster_passes() {
    WinogradPasses passes;
    passes.forward = is_faster(&Trial::forward_weights, &Trial::forward);
    passes.data_gradient = is_faster(&Trial::backward_weights, &Trial::data_gradient);
    passes.weight_gradient = is_faster(nullptr, &Trial::weight_gradient);
    return passes;
  }

 private:
  struct LaneMemory {
    HostMemory x, y, gradient, scratch;
    std::size_t scratch_bytes;
    dnnl::stream stream{engine()};
  };
  using Prepare = void (Trial::*)(bool, std::size_t);
  using Run = void (Trial::*)(bool, std::size_t, std::size_t);

  double seconds(bool by_winograd, Prepare prepare, Run run) {
    const double begin = now_s();
    if (prepare) on_lanes([&](std::size_t lane) { (this->*prepare)(by_winograd, lane); });
    on_lanes([&](std::size_t lane) {
      for (const Chunk& chunk : region_.lanes[lane])
        (this->*run)(by_winograd, lane, std::min(chunk.count, most_rows_));
    });
    return now_s() - begin;
  }

  template <class Call>
  void on_lanes(const Call& call) {
    team_.run([&](std::size_t lane) {
      if (lane < lanes_) call(lane);
    });
  }

  /// The best of some tries each, in turn, so that other work on the machine meets both.
  bool is_faster(Prepare prepare, Run run) {
    constexpr int tries = 4;
    constexpr double worthwhile = 0.9;
    double best_s[2] = {std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
    for (int i = 0; i < tries; ++i)
      for (const bool by_winograd : {false, true})
        best_s[by_winograd] = std::min(best_s[by_winograd], seconds(by_winograd, prepare, run));
    return best_s[true] < worthwhile * best_s[false];
  }

  void forward_weights(bool by_winograd, std::size_t lane) {
    if (by_winograd)
      winograd_.transform_forward(weights_.as<float>(), lane, lanes_, copy_.data());
    else
      to_forward_.run(weights_.as<float>(), copy_.data(), lane, lanes_, memory_[lane].stream);
  }
  void backward_weights(bool by_winograd, std::size_t lane) {
    if (by_winograd)
      winograd_.transform_backward(weights_.as<float>(), lane, lanes_, copy_.data());
    else
      to_backward_.run(weights_.as<float>(), copy_.data(), lane, lanes_, memory_[lane].stream);
  }

  void forward(bool by_winograd, std::size_t lane, std::size_t rows) {
    LaneMemory& m = memory_[lane];
    if (by_winograd)
      return winograd_.forward(rows, m.x.data(), weights_.as<float>(), copy_.data(), m.y.data(),
                               m.scratch.data());
    execute(m, primitives_.at(rows).forward,
            {{DNNL_ARG_SRC, at(geometry_.source(rows), m.x)},
             {DNNL_ARG_WEIGHTS, at(formats_.forward, copy_)},
             {DNNL_ARG_DST, at(geometry_.destination(rows), m.y)}});
  }
  void data_gradient(bool by_winograd, std::size_t lane, std::size_t rows) {
    LaneMemory& m = memory_[lane];
    if (by_winograd)
      return winograd_.data_gradient(rows, m.y.data(), weights_.as<float>(), copy_.data(),
                                     m.x.data(), m.scratch.data());
    execute(m, primitives_.at(rows).backward_data,
            {{DNNL_ARG_DIFF_SRC, at(geometry_.source(rows), m.x)},
             {DNNL_ARG_WEIGHTS, at(formats_.backward_data, copy_)},
             {DNNL_ARG_DIFF_DST, at(geometry_.destination(rows), m.y)}});
  }
  void weight_gradient(bool by_winograd, std::size_t lane, std::size_t rows) {
    LaneMemory& m = memory_[lane];
    if (by_winograd)
      return winograd_.weight_gradient(rows, m.x.data(), m.y.data(), false, m.gradient.as<float>(),
                                       m.scratch.data());
    if (tap_gradient_)
      return tap_gradient_(geometry_.taps(), rows, m.x.data(), m.y.data(), false,
                           m.gradient.as<float>(), m.scratch.data());
    execute(m, primitives_.at(rows).backward_weights,
            {{DNNL_ARG_SRC, at(geometry_.source(rows), m.x)},
             {DNNL_ARG_DIFF_WEIGHTS, at(formats_.gradient, m.gradient)},
             {DNNL_ARG_DIFF_DST, at(geometry_.destination(rows), m.y)}});
  }

  static memory at(const memory::desc& desc, const HostMemory& host) {
    return {desc, engine(), host.data()};
  }
  static void execute(LaneMemory& m, const dnnl::primitive& primitive,
                      std::unordered_map<int, memory> arguments) {
    const memory::desc scratch({static_cast<memory::dim>(m.scratch_bytes)}, memory::data_type::u8,
                               memory::format_tag::a);
    arguments.emplace(DNNL_ARG_SCRATCHPAD, at(scratch, m.scratch));
    primitive.execute(m.stream, arguments);
  }

  const ConvGeometry geometry_;
  const ConvFormats formats_;
  const Region& region_;
  Team& team_;
  std::size_t lanes_, most_rows_;
  WinogradConv winograd_;
  TapGradient tap_gradient_;
  WeightReorder to_forward_, to_backward_;
  HostMemory weights_, copy_;
  std::map<std::size_t, ConvPrimitives> primitives_;
  std::vector<LaneMemory> memory_;
};

}  // namespace

backend::Winograd measure_winograd(const nn::Network& network, const backend::ProgramSpec& spec,
                                   Team& team, std::size_t chunk_bytes) {
  const Storage storage = storage_of(spec.precision);
  const std::size_t lanes = lanes_of(network, spec, team.lanes());
  const std::vector<Unit> units = lower(network, trains_bands(spec, lanes));
  const std::vector<Region> regions =
      make_regions(network, units, spec, lanes, storage, chunk_bytes);
  std::map<backend::WinogradShape, WinogradPasses> tried;
  for (const Unit& unit : units) {
    if (unit.kind != UnitKind::conv) continue;
    const ConvGeometry geometry = ConvGeometry::of(network, unit.node, storage);
    const ConvFormats formats = ConvFormats::choose(geometry);
    const backend::WinogradShape shape = WinogradConv::shape(geometry);
    if (!WinogradConv::fits(geometry, formats) || tried.contains(shape)) continue;
    const Region& region = regions[unit.level];
    const bool bands = trains_bands(spec, lanes);
    const std::size_t lines = geometry.height * region.chunk_stripes / region.stripes;
    const ConvGeometry part = bands ? geometry.on(lines, lines, 1, 1) : geometry;
    tried[shape] =
        Trial(part, formats, region, team, lanes, bands ? 1 : spec.batch).faster_passes();
  }
  std::erase_if(tried, [](const auto& entry) { return !entry.second.any(); });
  if (tried.empty()) return {};
  return {backend::Winograd::Mode::listed, std::move(tried)};
}

namespace {

void run_once(CpuProgram& program, const nn::Network& network) {
  const std::size_t rows = program.spec().batch;
  const HostMemory images(rows * backend::image_bytes(network, program.spec()));
  const std::vector<data::Target> targets(rows, data::Target{0, 0, 1});
  program.load({.images = images.as<const std::uint8_t>(),
                .targets = targets.data(),
                .rows = rows,
                .capacity = rows});
  for (const backend::TapeStep& step : program.forward()) step.run();
  if (!program.spec().training) return;
  for (const backend::TapeStep& step : program.backward(false)) step.run();
}

/// All programs stay until the end, as in a run.
std::size_t run_all(const nn::Network& network, std::span<const backend::ProgramSpec> specs,
                    Team& team, std::size_t chunk_bytes) {
  SharedBlock block;
  CpuParameters parameters(network, storage_of(specs.front().precision));
  // All pages are touched, so that they are known. As numbers: 0.0115, far from denormals.
  const std::size_t bytes = parameters.arena().size * sizeof(float);
  for (const backend::Part part : {backend::Part::weights, backend::Part::gradients})
    std::memset(parameters.at(part, 0), 0x3c, bytes);
  std::vector<std::unique_ptr<CpuProgram>> programs;
  for (backend::ProgramSpec spec : specs) {
    spec.recompute = {.mode = backend::Recompute::Mode::least};
    spec.loss = {};  // its targets are classes
    spec.tile = {};  // there are no others to exchange lines with
    programs.push_back(
        std::make_unique<CpuProgram>(network, spec, parameters, team, block, chunk_bytes));
    run_once(*programs.back(), network);
  }
  block.discard();
  return resident_bytes() - 2 * bytes;
}

}  // namespace

std::size_t measure_memory(const nn::Network& network, std::span<const backend::ProgramSpec> specs,
                           Team& team, std::size_t chunk_bytes) {
  check(!specs.empty(), "programs to measure");
  const std::size_t bytes = run_all(network, specs, team, chunk_bytes);
  // Else the run's own programs would get other places in the heap, next to the gaps of these.
  ::malloc_trim(0);
  return bytes;
}

}  // namespace lockstep::cpu
