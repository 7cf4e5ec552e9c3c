#include "lockstep/train/trainer.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/agreement.hpp"
#include "lockstep/device/idle.hpp"
#include "lockstep/optim/loss_scale.hpp"
#include "lockstep/reduce/tree.hpp"
#include "train/loop/step_laps.hpp"
#include "train/pipeline/pipeline.hpp"

namespace lockstep::train {
namespace {

bool reads_image(const nn::Network& network, const nn::Tensor& tensor) {
  return network.nodes[network.nodes[tensor.node].inputs[0]].op == nn::Op::input;
}

optim::UpdateRule update_rule(const TrainerSpec& spec, const nn::ArenaLayout& layout) {
  optim::UpdateRule rule{.formula = spec.formula, .weight_decay = {}, .adaptive = {}};
  const bool by_muon = std::holds_alternative<optim::Muon>(spec.formula);
  for (std::size_t s = 0; s < layout.moving_slices(); ++s) {
    const nn::Tensor& tensor = layout.slices[s].tensor;
    const nn::Role role = tensor.role;
    const bool is_weight = role == nn::Role::conv_weight || role == nn::Role::linear_weight;
    const bool decays = nn::learned(role) && (is_weight || spec.decay_norm_and_bias);
    rule.weight_decay.push_back(decays ? spec.weight_decay : 0);
    const bool is_filter = role == nn::Role::conv_weight && !reads_image(spec.network, tensor);
    const bool adapts = by_muon ? is_filter : is_weight;
    rule.adaptive.push_back(adapts ? 1.f : 0.f);
    const float place = nn::in_head(role) ? 1 : spec.backbone_lr_factor;
    rule.rate.push_back(by_muon && !adapts ? spec.rest_lr_factor * place : place);
  }
  if (spec.backbone_lr_factor == 1 && spec.rest_lr_factor == 1) rule.rate.clear();
  return rule;
}

std::unique_ptr<backend::Parameters> make_parameters(const TrainerSpec& spec,
                                                     backend::Backend& backend) {
  backend.require_fit(spec.network, spec.program);
  return backend.make_parameters(spec.network, spec.program.precision);
}

/// An overflow in any bucket skips the whole step, and clipping needs the norm of all gradients.
bool updates_at_once(const TrainerSpec& spec) {
  return backend::has_loss_scale(spec.program.precision) || spec.clip_norm > 0;
}

/// Gradients are divided by the global batch: with this, those of one of `sharers` parts of it are
/// as large as if it trained alone.
backend::LossScale first_loss_scale(std::size_t sharers) {
  backend::LossScale scale;
  const auto power = static_cast<float>(std::bit_floor(sharers));
  scale.scale = std::min(scale.scale * power, optim::largest_scale);
  return scale;
}

/// A part of a batch as a separate batch.
data::Batch view(const data::Batch& batch, const MicroBatch& part, std::size_t row_bytes,
                 std::size_t outputs) {
  data::Batch piece = batch;
  if (piece.images != nullptr) piece.images += part.first * row_bytes;
  if (piece.targets != nullptr) piece.targets += part.first;
  if (piece.wanted != nullptr) piece.wanted += part.first * outputs;
  piece.rows = piece.capacity = part.rows;
  return piece;
}

/// ", and the weights of fc.bias differ in norm": which tensors tell the ranks apart, or nothing if
/// no norm does. Collective.
std::string where_ranks_differ(backend::Backend& backend, const backend::Parameters& parameters,
                               const Pipeline& pipeline, comm::Control& control) {
  constexpr std::size_t most = 3;
  std::vector<std::string> found;
  const nn::ArenaLayout& layout = parameters.layout();
  const std::vector<std::string> names = pipeline.all_slices(layout);
  const auto compare = [&](backend::Part part, const char* what) {
    std::vector<double> norms = pipeline.of_all_slices(backend.norms(parameters, part), layout);
    const std::vector<double> largest = control.max(norms, "weight audit");
    for (double& norm : norms) norm = -norm;
    const std::vector<double> smallest = control.max(norms, "weight audit");
    for (std::size_t s = 0; s < norms.size(); ++s)
      if (!(largest[s] == -smallest[s]))
        found.push_back(fmt::format("the {} of {}", what, names[s]));
  };
  compare(backend::Part::weights, "weights");
  compare(backend::Part::momentum, "momentum");
  if (parameters.has_average()) compare(backend::Part::average, "average");
  if (parameters.has_second_moments()) compare(backend::Part::second_moments, "second moments");
  if (found.empty()) return "";
  const std::size_t others = found.size() - std::min(found.size(), most);
  found.resize(found.size() - others);
  return fmt::format("; {}{} differ in norm", join(found, ", "),
                     others > 0 ? fmt::format(" and {} more", others) : "");
}

}  // namespace

Trainer::Trainer(const TrainerSpec& spec, backend::Backend& backend, comm::Communicator& replicas,
                 Pipeline* pipeline)
    : spec_(spec),
      backend_(backend),
      replicas_(replicas),
      alone_(pipeline ? nullptr : std::make_unique<Pipeline>()),
      pipeline_(pipeline ? *pipeline : *alone_),
      norm_span_(backend::make_norm_span(spec.norm_ranks, backend, replicas)),
      tiles_(backend::make_tile_group(spec.tiles, backend, replicas)),
      parameters_(make_parameters(spec, backend)),
      rule_(update_rule(spec, parameters_->layout())) {
  spec_.program.norm_span = norm_span_.get();
  spec_.program.tiles = tiles_.get();
  if (tiles_) spec_.program.tile = tiles_->place();
  spec_.program.slots = pipeline_.slots();
  spec_.program.weights_later = pipeline_.weights_later();
  backend::initialise(spec_.network, {spec_.seed}, *parameters_);
  parameters_->set_loss_scale(first_loss_scale(sharers()));
  if (keeps_average()) parameters_->start_average();
  if (optim::has_second_moments(rule_.formula)) parameters_->start_second_moments();
  program_for(spec_.program.batch);
  exchange_ = spec_.make_exchange(
      {.kind = spec_.exchange,
       .buckets = reduce::plan_buckets(parameters_->layout(), spec_.bucket_bytes),
       .update_at_once = updates_at_once(spec_),
       .loss_scale = backend::has_loss_scale(spec_.program.precision),
       .local = spec_.local,
       .gossip = spec_.gossip,
       .power_sgd = spec_.power_sgd,
       .shards = spec_.shards},
      {replicas_, backend_, *parameters_});
  require(!spec_.graph || exchange_->repeats(),
          fmt::format("a graph repeats one step's work, but the exchange '{}' does not do the same "
                      "in each step: leave out --graph",
                      exchange_->name()));
  laps_ = std::make_unique<StepLaps>(backend_.device());
  if (spec_.graph) repeater_ = backend_.device().make_repeater();
  replicas_.activity.follow(backend_.device().progress_word());
}

Trainer::~Trainer() { replicas_.activity.follow(nullptr); }

void Trainer::enter_phase(comm::Phase phase) {
  replicas_.activity.enter(phase);
  backend_.device().mark_progress(replicas_.activity.code(phase));
}

backend::Program& Trainer::program_for(std::size_t rows) {
  std::unique_ptr<backend::Program>& program = programs_[rows];
  if (!program) {
    backend::ProgramSpec spec = spec_.program;
    spec.batch = rows;
    if (rows != spec_.program.batch) spec.plan_cache.clear();  // not worth measuring
    spec.own_memory = rows != spec_.program.batch && spec.slots > 1;
    program = backend_.compile(spec_.network, spec, *parameters_);
  }
  return *program;
}

comm::GridAxis Trainer::replica() const {
  const auto tiles = static_cast<int>(spec_.tiles);
  return {.index = replicas_.rank() / tiles, .count = replicas_.world() / tiles, .ranks = {}};
}

std::size_t Trainer::sharers() const {
  return spec_.shards > 0 ? spec_.shards : static_cast<std::size_t>(replica().count);
}

std::vector<MicroBatch> Trainer::plan(std::size_t global_rows) const {
  return plan_own(global_rows, spec_.shards, spec_.program.batch, replica());
}

void Trainer::prepare(std::size_t global_rows) {
  for (const MicroBatch& part : plan(global_rows))
    if (part.rows > 0) program_for(part.rows);
}

StepReport Trainer::step(const data::Batch& batch, std::size_t global_rows, float lr,
                         const std::function<std::optional<NextBatch>()>& next) {
  launch(batch, global_rows, lr, next);
  const StepReport mine = report();
  require_scaling(mine);
  return mine;
}

void Trainer::launch(const data::Batch& batch, std::size_t global_rows, float lr,
                     const std::function<std::optional<NextBatch>()>& next) {
  const auto parts = plan(global_rows);
  check(parts.back().first + parts.back().rows == batch.rows,
        "sampler and trainer share a batch differently");
  optim::StepScalars scalars{.lr = lr, .gradient_scale = 1 / static_cast<float>(global_rows)};
  if (keeps_average()) scalars.average_share = optim::average_share(spec_.average, steps_done_);
  if (optim::has_second_moments(rule_.formula)) scalars.steps_done = steps_done_;
  backend::Program& full = program_for(spec_.program.batch);
  const std::size_t place = full.input_place();
  exchange_->begin();
  laps_->begin();
  const std::size_t outputs =
      spec_.program.loss.task == data::Task::classes ? 0 : spec_.network.classes;
  const std::vector<StagePiece> pieces = pipeline_.pieces(parts.size());
  std::vector<std::size_t> rows;
  for (const MicroBatch& part : parts) rows.push_back(part.rows);
  pipeline_.begin(std::move(rows), backend_.device().compute());
  const data::Batch mine = pipeline_.share_targets(batch, outputs, [&] { wait_meanwhile(); });
  // A turn is what follows each other of one micro-batch.
  for (auto turn = pieces.begin(); turn != pieces.end();) {
    const auto end = std::find_if(
        turn, pieces.end(), [&](const StagePiece& piece) { return piece.micro != turn->micro; });
    run_turn(mine, parts, {turn, end}, scalars, end == pieces.end());
    turn = end;
  }
  ++steps_done_;
  // Only some ranks may have run the full program, and all must repeat the same recording next.
  if (!all_full(parts)) full.set_input_place(place);
  put_aside();
  launched_.push_back(
      {backend_.device().compute().record(), std::exchange(figures_, {}), trust_of_stages()});
  if (const auto upcoming = next ? next() : std::nullopt) prefetch(*upcoming);
}

/// Copies the first micro-batch, unless its program would have to be compiled early.
void Trainer::prefetch(const NextBatch& next) {
  if (next.batch.rows == 0) return;
  const MicroBatch first = plan(next.global_rows).front();
  const auto program = programs_.find(first.rows);
  if (program != programs_.end())
    program->second->prefetch(view(next.batch, first,
                                   backend::image_bytes(spec_.network, spec_.program),
                                   spec_.network.classes));
}

/// The same on all ranks: a collective must be a recording's on all of them or on none.
bool Trainer::all_full(const std::vector<MicroBatch>& parts) const {
  const std::size_t rows = sharers() * spec_.program.batch;
  return std::all_of(parts.begin(), parts.end(),
                     [&](const MicroBatch& part) { return part.global_rows == rows; });
}

/// The one that ends the step reduces and updates, too.
void Trainer::run_turn(const data::Batch& batch, const std::vector<MicroBatch>& parts,
                       std::span<const StagePiece> turn, optim::StepScalars scalars, bool ends) {
  using enum StagePiece::Do;
  const std::size_t index = turn.front().micro;
  const MicroBatch& part = parts[index];
  const auto has = [&](StagePiece::Do what) {
    return std::ranges::find(turn, what, &StagePiece::what) != turn.end();
  };
  const bool last = index + 1 == parts.size();
  if (part.rows == 0) {
    if (has(backward)) contribute_nothing(last);
    if (ends) reduce_and_update(scalars, parts.size());
    return;
  }
  backend::Program& program = program_for(part.rows);
  program.select(turn.front().slot);
  if (has(forward)) {
    // Each tile has the statistics of the whole images.
    scalars.statistics_share =
        static_cast<float>(part.rows) / static_cast<float>(part.global_rows * spec_.tiles);
    ran_.insert(&program);
    program.set_scalars(scalars);
    program.load(view(batch, part, backend::image_bytes(spec_.network, spec_.program),
                      spec_.network.classes));
    enter_phase(comm::Phase::forward);
  }
  const auto work = [&] {
    for (const StagePiece& piece : turn) {
      pipeline_.pass(piece, program, [&] { wait_meanwhile(); });
      if (piece.what == forward) {
        run(program.forward(), last);
        end_lap(&observe::StepTimes::forward_ms);
      } else if (piece.what == backward || piece.what == weight_gradients) {
        run_backward(program, piece, last);
      } else {
        laps_->end(&observe::StepTimes::exposed_comm_ms);
      }
    }
    if (!ends) return;
    pipeline_.settle([&] { wait_meanwhile(); });
    reduce_and_update(scalars, parts.size());
  };
  if (!spec_.graph || !all_full(parts)) {
    work();
  } else {
    // Without shards those between the first and the last are alike.
    const bool apart = exchange_->adds_shards() || last;
    const std::uint64_t which = apart ? index : std::min<std::size_t>(index, 1);
    const std::uint64_t key =
        std::uint64_t{parts.size()} << 32 | which << 1 | program.input_place();
    if (laps_->repeat(*repeater_, key, work) && last)
      replicas_.repeated("the step's reductions", backend_.device().compute().record());
  }
  if (!last && exchange_->adds_shards()) put_aside();
}

void Trainer::run_backward(backend::Program& program, const StagePiece& piece, bool last) {
  enter_phase(comm::Phase::backward);
  const bool adds = piece.micro > 0 && !exchange_->adds_shards();
  run(piece.what == StagePiece::Do::backward ? program.backward(adds)
                                             : program.weight_gradients(adds),
      last);
  if (!last && exchange_->adds_shards()) exchange_->keep();
  end_lap(&observe::StepTimes::backward_ms);
}

/// What a tile has waited for others in there was communication.
void Trainer::end_lap(double observe::StepTimes::*time) {
  laps_->end(time);
  if (tiles_)
    laps_->move(time, &observe::StepTimes::exposed_comm_ms, tiles_->span().take_waited_ms());
}

/// With accumulation a gradient is final only in the last micro-batch.
void Trainer::run(const backend::Tape& tape, bool last) {
  for (const backend::TapeStep& step : tape) {
    step.run();
    pipeline_.progress();
    if (tiles_) tiles_->progress();
    if (!last) continue;
    for (const std::size_t slice : step.final_slices) exchange_->ready(slice);
    exchange_->progress();
  }
}

/// While the host waits for another stage.
void Trainer::wait_meanwhile() { exchange_->progress(); }

/// Of what ran since the last call.
void Trainer::put_aside() {
  const auto ran = std::exchange(ran_, {});
  figures_.push_back(backend_.put_aside({ran.begin(), ran.end()}, *parameters_));
}

/// A rank, or a shard, without rows in an uneven last batch: zeros. A rank's last one joins every
/// collective, in the order in which the tapes of the others make them.
void Trainer::contribute_nothing(bool last) {
  std::vector<float> zeros;
  const auto& slices = parameters_->layout().slices;
  for (std::size_t i = 0; i < parameters_->layout().moving_slices(); ++i) {
    zeros.assign(slices[i].tensor.count(), 0);
    parameters_->import_slice(backend::Part::gradients, i, zeros);
  }
  if (!last) return exchange_->keep();
  const backend::Program& full = program_for(spec_.program.batch);
  for (const backend::Tape* tape :
       {&full.forward(), &full.backward(false), &full.weight_gradients(false)})
    for (const backend::TapeStep& piece : *tape) {
      if (piece.join) piece.join();
      for (const std::size_t slice : piece.final_slices) exchange_->ready(slice);
    }
}

void Trainer::reduce_and_update(const optim::StepScalars& scalars, std::size_t micro_batches) {
  const std::size_t learned = parameters_->layout().learned_slices;
  enter_phase(comm::Phase::update);
  for (std::size_t b = 0; b < exchange_->buckets().size(); ++b) {
    exchange_->wait(b);
    laps_->end(&observe::StepTimes::exposed_comm_ms);
    const reduce::SliceRange slices = exchange_->updates_after(b);
    const std::size_t last = std::min(slices.last, learned);
    if (slices.first >= last) continue;
    judge_gradients();
    clip();
    backend_.update(*parameters_, rule_, scalars, slices.first, last);
    laps_->end(&observe::StepTimes::update_ms);
  }
  // Running statistics lie after the last learned slice: all buckets are reduced by now. Shards'
  // are shares of one.
  backend_.update_statistics(*parameters_, exchange_->adds_shards() ? 1 : micro_batches);
  laps_->end(&observe::StepTimes::update_ms);
  exchange_->after_update();
  laps_->end(&observe::StepTimes::exposed_comm_ms);
  if (!keeps_average()) return;
  backend_.update_average(*parameters_, scalars.average_share);
  laps_->end(&observe::StepTimes::update_ms);
}

/// The norm of all stages' gradients is added in the order of the whole network's slices.
void Trainer::clip() {
  if (spec_.clip_norm == 0) return;
  if (pipeline_.is_whole()) return backend_.clip_gradients(*parameters_, spec_.clip_norm);
  double sum = 0;
  for (const double square :
       pipeline_.of_all_slices(backend_.gradient_squares(*parameters_), parameters_->layout()))
    sum += square;
  backend_.clip_by_norm(*parameters_, spec_.clip_norm, std::sqrt(sum));
}

std::optional<optim::TrustRatios> Trainer::trust_of_stages() const {
  const bool has_ratios = std::holds_alternative<optim::Lars>(rule_.formula) ||
                          std::holds_alternative<optim::Lamb>(rule_.formula);
  if (pipeline_.is_whole() || !has_ratios) return std::nullopt;
  return optim::spread_of(
      pipeline_.of_all_slices(parameters_->trust_by_slice(), parameters_->layout()));
}

void Trainer::judge_gradients() {
  if (!backend::has_loss_scale(spec_.program.precision)) return;
  backend_.judge_gradients(*parameters_, exchange_->largest_gradient());
}

void Trainer::let_run(std::size_t most) {
  if (launched_.size() <= most) return;
  const comm::Waiting waiting(replicas_.activity);
  // Not in a CUDA call, whose lock would keep the watch from checking the collectives.
  device::Event& end = *launched_[launched_.size() - 1 - most].end;
  for (device::Idle idle; !end.done(); idle(end.due_in_s())) exchange_->progress();
  exchange_->progress();  // aborted reductions end the wait too; this throws the reason
}

StepReport Trainer::report() {
  if (reports_.empty()) read_reports();
  check(!reports_.empty(), "a report without a step");
  StepReport oldest = std::move(reports_.front());
  reports_.pop_front();
  return oldest;
}

void Trainer::read_reports() {
  let_run(0);
  for (const Launched& step : std::exchange(launched_, {})) {
    StepReport& report = reports_.emplace_back();
    backend::StepFigures figures;
    for (const backend::ReadFigures& read : step.figures) {
      figures = read();
      if (exchange_->adds_shards()) figures.metrics = backend::in_any_order(figures.metrics);
      report.metrics += figures.metrics;
    }
    report.loss_scale = figures.loss_scale;
    if (spec_.clip_norm > 0) report.gradient_norm = figures.clipped_norm;
    if (!report.skipped()) report.trust = step.trust ? step.trust : figures.trust;
  }
  const std::vector<StepLap> laps = laps_->take();
  check(laps.size() == reports_.size(), "a step's figures and times differ");
  for (std::size_t i = 0; i < laps.size(); ++i) {
    reports_[i].times = laps[i].times;
    reports_[i].idle_ms = laps[i].idle_ms;
  }
}

void Trainer::require_scaling(const StepReport& report) {
  if (report.skipped() && report.loss_scale->skipped_in_a_row >= most_skipped_steps)
    throw Error(
        fmt::format("{} steps in a row were skipped because their gradients overflowed, down to "
                    "a loss scale of {}: training diverged. Lower optim.lr, lengthen "
                    "optim.warmup-epochs or use --precision bf16",
                    most_skipped_steps, report.loss_scale->scale),
        Ending::diverged);
}

void Trainer::audit(comm::Control& control, std::uint64_t step) {
  const reduce::Settled settled(*exchange_);
  control.activity.enter(comm::Phase::audit);
  const std::string hash = pipeline_.of_all_stages(fmt::format("{:08x}", parameters_->hash()));
  const std::string who = comm::disagreement(control, hash, "weight audit");
  if (!who.empty())
    throw Error(fmt::format("ranks diverged at step {}: the state's hash is {}{}", step, who,
                            where_ranks_differ(backend_, *parameters_, pipeline_, control)),
                Ending::disagreement);
}

}  // namespace lockstep::train
