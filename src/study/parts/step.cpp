// How long a step takes. A stage's tape is that of its nodes; of a tile, with the lines that the
// largest has. The schedule is played with these times; what the last micro-batch's backward hides
// of the sums, simulate_step() says.
#include <algorithm>
#include <numeric>

#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/base/share.hpp"
#include "lockstep/nn/lines.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/study/parts/parts.hpp"
#include "lockstep/study/simulate/timeline.hpp"
#include "study/simulate/pipeline.hpp"

namespace lockstep::study {
namespace {

using enum train::StagePiece::Do;
using backend::nodes_of_step;
using backend::TimedStep;
using backend::TimedTape;

/// A stage's tape, and what waits for other tiles adds to it.
struct StageTape {
  nn::Network network;
  TimedTape tape;
  double again_ms = 0;
  double compute_ms = 0;  // of the mean tile
  double gathers_ms = 0, halos_ms = 0;
  bool late = false;  // weight gradients come apart
};

/// The largest tile's share of a node's lines.
double largest_share(const nn::Network& network, const std::vector<std::size_t>& nodes,
                     std::size_t tiles) {
  double share = 0;
  for (const std::size_t n : nodes) {
    const std::size_t height = network.nodes[n].shape.height;
    if (height < tiles) return 1;  // the head: all make it
    const std::size_t most = (height + tiles - 1) / tiles;
    share = std::max(share, static_cast<double>(most) / static_cast<double>(height));
  }
  return nodes.empty() ? 1 / static_cast<double>(tiles) : share;
}

double ms_of(const ReduceCost& cost) { return 1e3 * (cost.busy_s + cost.delay_s); }

/// Lines that a middle tile reads of others, times their bytes.
double halo_bytes(const nn::Network& network, std::size_t n, std::size_t tiles,
                  std::size_t value_bytes) {
  const nn::Node& node = network.nodes[n];
  if (node.kernel < 2) return 0;
  const nn::Shape& in = network.nodes[node.inputs[0]].shape;
  const nn::WindowLines window{in.height, node.shape.height, node.kernel, node.stride,
                               node.padding};
  const std::size_t tile = tiles / 2;
  const nn::LineRange read =
      nn::read_by(window, nn::even_lines(node.shape.height, tile, tiles)).lines;
  const std::size_t own = nn::common(read, nn::even_lines(in.height, tile, tiles)).count;
  return static_cast<double>((read.count - own) * in.width * in.channels * value_bytes);
}

/// A step hides what its lines take to travel, as long as it is; in forward so does the gather of
/// the numbers of a batch norm, with which they leave.
void add_halos(const PartsSpec& spec, const Parts& parts, std::size_t rows, StageTape& stage) {
  const Layout layout{.ranks = parts.ranks(), .per_node = spec.per_node};
  const std::size_t bytes = backend::value_bytes(spec.program.precision);
  for (auto* steps : {&stage.tape.forward, &stage.tape.backward})
    for (TimedStep& step : *steps)
      for (const std::size_t n : nodes_of_step(stage.network, step.name)) {
        if (n == 0 || stage.network.nodes[stage.network.nodes[n].inputs[0]].op == nn::Op::input)
          continue;  // each has its part of the image
        const double all =
            halo_bytes(stage.network, n, parts.tiles, bytes) * static_cast<double>(rows);
        const auto floats = static_cast<double>(2 * stage.network.nodes[n].shape.channels);
        const bool gathers = steps == &stage.tape.forward;
        const double hidden =
            step.ms +
            (gathers ? 1e3 * gather_s(spec.links, layout, parts.tiles, floats * sizeof(float)) : 0);
        const double exposed = ms_of(shift_cost(spec.links, layout, 1, all)) - hidden;
        if (all == 0 || exposed <= 0) continue;
        step.ms += exposed;
        stage.halos_ms += exposed;
      }
}

void share_lines(const PartsSpec& spec, const Parts& parts, std::size_t rows, StageTape& stage) {
  for (auto* steps : {&stage.tape.forward, &stage.tape.backward})
    for (TimedStep& step : *steps) {
      const double share =
          largest_share(stage.network, nodes_of_step(stage.network, step.name), parts.tiles);
      step.ms *= share;
      step.weights_ms *= share;
    }
  add_halos(spec, parts, rows, stage);
}

void add_norm_gathers(const PartsSpec& spec, const Parts& parts, StageTape& stage) {
  const Layout layout{.ranks = parts.ranks(), .per_node = spec.per_node};
  const TimedTape gathering = with_gathers(stage.tape, stage.network, [&](double bytes) {
    return gather_s(spec.links, layout, parts.tiles, bytes);
  });
  stage.gathers_ms = gathering.forward_ms() + gathering.backward_ms() - stage.tape.forward_ms() -
                     stage.tape.backward_ms();
  stage.tape = gathering;
}

StageTape tape_of(const PartsSpec& spec, const Parts& parts, std::size_t stage,
                  const nn::Network& network, double made_again) {
  const std::size_t rows = rows_of(spec, parts);
  StageTape made{.network = network, .tape = {}};
  made.tape =
      time_tape(network, rows, spec.program.precision, spec.pace,
                {.whole = parts.stages > 1 ? &spec.network : nullptr, .operations_a_byte = 0});
  const auto tiles = static_cast<double>(parts.tiles);
  made.compute_ms = (made.tape.forward_ms() + made.tape.backward_ms()) / tiles;
  if (parts.tiles > 1) share_lines(spec, parts, rows, made);
  made.again_ms = made_again * made.tape.forward_ms();  // without the gathers
  if (parts.tiles > 1) add_norm_gathers(spec, parts, made);
  made.late = train::late_in_stage(parts.order, stage, {parts.stages, parts.micro_batches}) > 0;
  return made;
}

StagePace pace_of(const StageTape& stage) {
  StagePace pace{.forward_ms = stage.tape.forward_ms(),
                 .backward_ms = stage.tape.backward_ms() + stage.again_ms};
  if (!stage.late) return pace;
  for (const TimedStep& step : stage.tape.backward) pace.weights_ms += step.weights_ms;
  pace.backward_ms -= pace.weights_ms;
  return pace;
}

/// The step of one stage as a tape: all that comes before the last micro-batch's backward, that,
/// and what comes after it.
TimedTape whole_step(const StageTape& stage, const std::vector<PlayedPiece>& played) {
  const auto last = std::find_if(played.rbegin(), played.rend(),
                                 [](const PlayedPiece& one) { return one.piece.what == backward; });
  TimedTape step;
  step.update_ms = stage.tape.update_ms;
  const double begin_ms = last->end_ms - pace_of(stage).backward_ms;
  step.forward.push_back({"before", begin_ms + stage.again_ms, {}});
  TimedTape weights;
  for (TimedStep one : stage.tape.backward) {
    if (stage.late && one.weights_ms > 0) {
      weights.backward.push_back({one.name, one.weights_ms, std::exchange(one.final_slices, {})});
      one.ms -= one.weights_ms;
    }
    step.backward.push_back(std::move(one));
  }
  if (!stage.late) return step;
  const PlayedPiece& end = played.back();  // the last weight gradients
  step.backward.push_back({"others", end.begin_ms - last->end_ms, {}});
  std::ranges::move(weights.backward, std::back_inserter(step.backward));
  return step;
}

std::vector<BoundaryCost> boundaries_of(const PartsSpec& spec, const Parts& parts,
                                        const std::vector<nn::Network>& stages) {
  const Layout layout{.ranks = parts.ranks(), .per_node = spec.per_node};
  std::vector<BoundaryCost> costs;
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
    const nn::Node& sent = stages[s].nodes.back();
    const double bytes = static_cast<double>(rows_of(spec, parts) * sent.shape.count() *
                                             backend::value_bytes(spec.program.precision)) /
                         static_cast<double>(parts.tiles);
    const auto cost = [&](double times) {
      return shift_cost(spec.links, layout, parts.replicas * parts.tiles, times * bytes);
    };
    costs.push_back({cost(1), cost(static_cast<double>(sent.gradients))});
  }
  return costs;
}

}  // namespace

std::size_t rows_of(const PartsSpec& spec, const Parts& parts) {
  return even_share(even_share(spec.batch, parts.replicas, 0), parts.micro_batches, 0);
}

std::vector<nn::Network> stages_of(const PartsSpec& spec, std::size_t stages) {
  return nn::split(spec.network, nn::balanced_cuts(spec.network, stages));
}

PartsStep time_of(const PartsSpec& spec, const Parts& parts,
                  const std::vector<double>& made_again) {
  const std::vector<nn::Network> networks = stages_of(spec, parts.stages);
  std::vector<StageTape> stages;
  PipelinePaces pipeline{.order = parts.order,
                         .micro_batches = parts.micro_batches,
                         .stages = {},
                         .boundaries = boundaries_of(spec, parts, networks)};
  for (std::size_t s = 0; s < parts.stages; ++s) {
    stages.push_back(tape_of(spec, parts, s, networks[s], made_again.empty() ? 0 : made_again[s]));
    pipeline.stages.push_back(pace_of(stages.back()));
  }
  const auto played = play_pipeline(pipeline);
  const Layout sharers{.ranks = parts.replicas * parts.tiles, .per_node = spec.per_node};
  const auto m = static_cast<double>(parts.micro_batches);
  PartsStep step;
  for (std::size_t s = 0; s < parts.stages; ++s) {
    const StepTimeline one =
        simulate_step(whole_step(stages[s], played[s]), backend::plain_layout(networks[s]),
                      spec.bucket_bytes, [&](double bytes) { return spec.sum(sharers, bytes); });
    step.step_ms = std::max(step.step_ms, one.step_ms());
    step.compute_ms +=
        (m * stages[s].compute_ms + stages[s].tape.update_ms) / static_cast<double>(parts.stages);
    step.gathers_ms = std::max(step.gathers_ms, m * stages[s].gathers_ms);
    step.halos_ms = std::max(step.halos_ms, m * stages[s].halos_ms);
  }
  return step;
}

}  // namespace lockstep::study
