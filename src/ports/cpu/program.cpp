#include "ports/cpu/program.hpp"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <new>
#include <numeric>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/device/idle.hpp"
#include "ports/cpu/plan/lifetimes.hpp"
#include "ports/cpu/units/conv/folded_runner.hpp"
#include "ports/cpu/units/pool_runner.hpp"

namespace lockstep::cpu {

Storage storage_of(backend::Precision precision) {
  require(
      precision == backend::Precision::fp32 || precision == backend::Precision::bf16,
      fmt::format("precision {} is not available on CPUs: use fp32 or bf16", to_string(precision)));
  return precision == backend::Precision::bf16 ? Storage::bf16 : Storage::fp32;
}

std::shared_ptr<HostMemory> SharedBlock::of_size(std::size_t bytes) {
  if (!block_ || bytes > size_) {
    block_ = std::make_shared<HostMemory>(bytes);
    size_ = bytes;
  }
  return block_;
}

bool SharedBlock::claim(const void* program, const std::shared_ptr<HostMemory>& memory) {
  if (user_ == program) return true;
  if (used_ && used_ != memory) used_->discard();
  user_ = program;
  used_ = memory;
  return false;
}

void SharedBlock::discard() {
  user_ = nullptr;
  for (const auto& block : {block_, used_})
    if (block) block->discard();
}

CpuProgram::CpuProgram(const nn::Network& network, const backend::ProgramSpec& spec,
                       CpuParameters& parameters, Team& team, SharedBlock& block,
                       std::size_t chunk_bytes)
    : network_(network),
      spec_(spec),
      team_(team),
      block_(block),
      context_(network_, spec_, parameters, storage_of(spec.precision),
               spec.lanes > 0 ? spec.lanes : team.lanes()),
      image_(context_) {
  check(spec.batch > 0 && spec.slots > 0, "a program needs at least one row and one slot");
  check(spec.weights_later == 0 || spec.recompute.mode == backend::Recompute::Mode::none,
        "weight gradients that come later need what backward makes again");
  check(parameters.storage() == context_.storage, "the parameters were made for another precision");
  check(spec.tile.is_whole() ||
            (spec.training && (spec.tiles || spec.planned) && can_share_rows(network, true)),
        "tiles are of a network that trains, and belong to a group");
  context_.units =
      spec_.training ? lower(network_, context_.has_bands) : fold(network_, context_.shares_rows);
  context_.plan_lines();
  context_.regions = context_.shares_rows
                         ? share_rows(context_.units, spec_.batch, context_.lanes)
                         : make_regions(network_, context_.units, spec_, context_.lanes,
                                        context_.storage, chunk_bytes);
  if (spec_.training && spec_.whole) {
    const nn::Network whole = chunked_like(network_, spec_);
    const std::vector<Unit> units = lower(whole, context_.has_bands);
    cut_alike(context_.regions, context_.units,
              make_regions(whole, units, spec_, context_.lanes, context_.storage, chunk_bytes),
              units);
  }
  make_runners();
  allocate();
  if (!spec_.planned) make_tapes();
}

void CpuProgram::make_runners() {
  for (std::size_t u = 0; u < context_.units.size(); ++u) {
    switch (context_.units[u].kind) {
      case UnitKind::conv:
        runners_.push_back(std::make_unique<ConvRunner>(context_, u, image_));
        break;
      case UnitKind::point:
        runners_.push_back(std::make_unique<PointRunner>(context_, u));
        break;
      case UnitKind::folded:
        if (context_.shares_rows)
          runners_.push_back(std::make_unique<BandedRunner>(context_, u, image_));
        else
          runners_.push_back(std::make_unique<FoldedRunner>(context_, u, image_));
        break;
      case UnitKind::pool:
        if (context_.shares_rows || context_.has_bands)
          runners_.push_back(std::make_unique<BandedPool>(context_, u));
        else
          runners_.push_back(std::make_unique<PoolRunner>(context_, u));
        break;
      case UnitKind::head:
        runners_.push_back(std::make_unique<HeadRunner>(context_, u));
        head_ = static_cast<HeadRunner*>(runners_.back().get());
        break;
      case UnitKind::receive:
        runners_.push_back(std::make_unique<ReceiveRunner>(context_, u));
        receive_ = static_cast<ReceiveRunner*>(runners_.back().get());
        break;
      case UnitKind::send:
        runners_.push_back(std::make_unique<SendRunner>(context_, u));
        send_ = static_cast<SendRunner*>(runners_.back().get());
        break;
    }
    context_.runners.push_back(runners_.back().get());
  }
}

void CpuProgram::allocate() {
  context_.scratch_of_region.assign(context_.regions.size(), 0);
  context_.value_places.resize(context_.units.size());
  const std::size_t regions = context_.regions.size();
  for (auto* messages : {&context_.norm_statistics, &context_.norm_sums}) messages->resize(regions);
  for (auto* messages :
       {&context_.made_values, &context_.made_gradients, &context_.output_gradients})
    messages->resize(regions);
  if (!spec_.training) context_.value_places = place_values(context_);
  for (auto& runner : runners_) {
    if (!spec_.planned) require_room_for_kernels();
    try {
      runner->plan();
    } catch (const dnnl::error& error) {
      if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
      throw;
    }
  }
  if (context_.span()) plan_norm_messages();
  place();
  if (!spec_.tile.is_whole()) plan_line_messages();
  if (spec_.planned) return;
  context_.block = block_.of_size(memory_.activations);
  const std::size_t scratch =
      *std::max_element(context_.scratch_of_region.begin(), context_.scratch_of_region.end());
  for (std::size_t lane = 0; lane < context_.lanes; ++lane) {
    context_.lane_scratch.emplace_back(scratch);
    context_.lane_library_scratch.emplace_back(context_.library_scratch);
    context_.streams.emplace_back(engine());
  }
  for (auto& runner : runners_) runner->bind();
}

void CpuProgram::plan_norm_messages() {
  for (std::size_t r = 0; r < context_.regions.size(); ++r) {
    const std::string& name = context_.regions[r].name;
    context_.norm_statistics[r].plan(*context_.span(), "batch norm before " + name);
    context_.norm_sums[r].plan(*context_.span(), "batch norm before " + name + " backward");
  }
}

void CpuProgram::plan_line_messages() {
  for (auto& runner : runners_) runner->plan_messages();
  for (std::size_t r = 0; r < context_.regions.size(); ++r) {
    const auto plan = [&](LineMessage& message, const char* what) {
      message.plan({spec_.tile, spec_.tiles}, spec_.batch,
                   fmt::format("lines of {} {}", context_.regions[r].name, what));
      memory_.workspace += message.bytes();
    };
    plan(context_.made_values[r], "forward");
    plan(context_.output_gradients[r], "backward");
    plan(context_.made_gradients[r], "after backward");
  }
}

/// Decides what backward makes again, and places all buffers.
void CpuProgram::place() {
  lifetimes_ = std::make_unique<Lifetimes>(network_, context_.units, context_.requests, spec_);
  const std::size_t parameters = 3 * sizeof(float) * context_.parameters.arena().size;
  const std::size_t scratch = spec_.recompute.scratch_reserved ? 0 : workspace();
  const auto placed = [&] {
    return backend::choose_placement(spec_, network_.name, *lifetimes_,
                                     {.fixed = parameters + scratch, .available = block_.size()});
  };
  backend::Placement placement = placed();
  folds_by_region_ =
      !context_.lasting.empty() && block_.size() > 0 && placement.total() > block_.size();
  if (folds_by_region_) {
    for (const auto& [request, region] : context_.lasting)
      context_.requests[request].first = context_.requests[request].last = region;
    placement = placed();
  }
  // The search took some megabytes, which would otherwise stay in the heap while steps run.
  if (spec_.recompute.mode != backend::Recompute::Mode::none) ::malloc_trim(0);
  context_.places = placement.offsets();
  context_.late_places = placement.late_offsets();
  context_.late_of_slot.resize(spec_.slots);
  for (std::size_t u = 0; u < context_.units.size(); ++u)
    context_.kept.push_back(lifetimes_->kept(u));
  memory_ = {.activations = placement.total(),
             .without_reuse = placement.without_reuse(),
             .workspace = workspace(),
             .made_again = lifetimes_->share_made_again()};
}

std::size_t CpuProgram::workspace() const {
  const std::size_t scratch =
      *std::max_element(context_.scratch_of_region.begin(), context_.scratch_of_region.end());
  return context_.lanes * (scratch + context_.library_scratch) +
         (receive_ ? receive_->bytes() : 0) + (send_ ? send_->bytes() : 0);
}

void CpuProgram::select(std::size_t slot) {
  check(slot < spec_.slots, fmt::format("a program of {} slots has no slot {}", spec_.slots, slot));
  context_.slot = slot;
}

void CpuProgram::make_tapes() {
  for (std::size_t r = 0; r < context_.regions.size(); ++r)
    forward_.push_back({.name = context_.regions[r].name,
                        .run = [this, r] { run_forward(r); },
                        .final_slices = {},
                        .join = joining(context_.norm_statistics[r])});
  if (!spec_.training) return;
  for (const bool accumulate : {false, true}) {
    backward_[accumulate] = make_backward(accumulate);
    if (spec_.weights_later > 0) weights_[accumulate] = make_weights(accumulate);
  }
}

backend::Tape CpuProgram::make_backward(bool accumulate) {
  backend::Tape tape;
  for (const auto& [region, again] : lifetimes_->after_forward()) {
    const Region& at = context_.regions[region];
    if (again) {
      tape.push_back({at.name + " again", [this, r = region] { run_again(r); }, {}});
      continue;
    }
    backend::TapeStep step{.name = at.name + " backward",
                           .run = [this, r = region, accumulate] { run_backward(r, accumulate); },
                           .final_slices = {},
                           .join = joining(context_.norm_sums[region])};
    for (const std::size_t u : at.units) {
      const std::vector<std::size_t> late = runners_[u]->late_slices();
      for (const std::size_t slice : runners_[u]->slices())
        if (std::ranges::find(late, slice) == late.end()) step.final_slices.push_back(slice);
    }
    tape.push_back(std::move(step));
  }
  if (spec_.weights_later > 0)
    tape.front().run = [this, run = tape.front().run] {
      take_late();
      run();
    };
  return tape;
}

/// The regions that have any, in the order of backward.
backend::Tape CpuProgram::make_weights(bool accumulate) {
  backend::Tape tape;
  for (std::size_t r = context_.regions.size(); r-- > 0;) {
    backend::TapeStep step{.name = context_.regions[r].name + " weights",
                           .run = [this, r, accumulate] { run_weights(r, accumulate); },
                           .final_slices = {}};
    for (const std::size_t u : context_.regions[r].units) {
      const auto slices = runners_[u]->late_slices();
      step.final_slices.insert(step.final_slices.end(), slices.begin(), slices.end());
    }
    if (!step.final_slices.empty()) tape.push_back(std::move(step));
  }
  tape.push_back({"weights end", [this] { ++ended_; }, {}});
  return tape;
}

void CpuProgram::load(const data::Batch& batch) {
  check(batch.capacity == spec_.batch,
        "the batch does not have the size that the program was compiled for");
  image_.load(batch.images);
  if (head_) head_->load(batch.targets, batch.wanted);
}

void CpuProgram::load_normalised(std::span<const float> images,
                                 std::span<const data::Target> targets) {
  const std::size_t values = receive_ ? 0 : spec_.batch * network_.input.count();
  check(images.size() == values && targets.size() == (head_ ? spec_.batch : 0),
        "the input does not have the size that the program was compiled for");
  image_.load_normalised(images.data());
  if (head_) head_->load(targets.data());
}

void CpuProgram::copy_logits(std::span<float> logits) const {
  check(head_, "only a network's last stage makes logits");
  head_->copy_logits(logits);
}

template <class Call>
void CpuProgram::on_lanes(const Call& call) const {
  team_.run([&](std::size_t lane) {
    for (std::size_t l = lane; l < context_.lanes; l += team_.lanes()) call(l);
  });
}

void CpuProgram::fold_units(const std::vector<std::size_t>& units) const {
  on_lanes([&](std::size_t lane) {
    for (std::size_t i = lane; i < units.size(); i += context_.lanes) runners_[units[i]]->fold();
  });
}

/// Folds all weights, if what was folded last time is lost or out of date.
void CpuProgram::begin_forward() {
  const bool kept = block_.claim(this, context_.block);
  if (spec_.training || folds_by_region_) return;
  const std::uint64_t version = context_.parameters.version();
  if (kept && folded_version_ == version) return;
  folded_version_.reset();
  std::vector<std::size_t> all(runners_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  fold_units(all);
  folded_version_ = version;
}

/// Tells the other ranks of the span what this one's rows sum up to, and waits for theirs.
void CpuProgram::exchange(NormMessage& message) {
  if (message.empty()) return;
  on_lanes([&](std::size_t lane) { message.tell(lane, context_.lanes); });
  message.send(spec_.batch);
}

std::function<void()> CpuProgram::joining(NormMessage& message) {
  if (message.empty()) return {};
  return [&message] { message.join(); };
}

/// Starts to tell other tiles the lines that they need of this one.
void CpuProgram::send(LineMessage& message) {
  if (message.empty()) return;
  message.send();
  awaited_.push_back(&message);
}

/// Makes progress with what comes from other tiles; true once all is there.
bool CpuProgram::lines_arrived() {
  std::erase_if(awaited_, [](LineMessage* message) { return message->arrived(); });
  if (!awaited_.empty()) return false;
  lines_there_.store(true, std::memory_order_release);
  return true;
}

void CpuProgram::wait_for_lines() {
  if (!awaited_.empty()) spec_.tiles->span().wait([this] { return lines_arrived(); });
}

/// Each lane takes its chunks, in order. Those that read lines of other tiles come last, and wait
/// for them; only the main thread, which has lane 0, can make messages progress.
template <class Call>
void CpuProgram::on_chunks(const Region& region, const Call& call) {
  lines_there_.store(awaited_.empty(), std::memory_order_relaxed);
  lines_lost_.store(false, std::memory_order_relaxed);
  team_.run([&](std::size_t thread) {
    const bool leads = thread == 0;
    try {
      for (std::size_t lane = thread; lane < context_.lanes; lane += team_.lanes())
        for (const Chunk& chunk : region.lanes[lane]) {
          if (leads && !awaited_.empty()) lines_arrived();
          if (chunk.reads_other_tiles && !wait_in_lane(leads)) return;
          call(chunk);
        }
      if (leads) wait_for_lines();
    } catch (...) {
      if (leads) lines_lost_.store(true, std::memory_order_release);
      throw;
    }
  });
}

/// False where the main thread has failed.
bool CpuProgram::wait_in_lane(bool leads) {
  if (leads) {
    wait_for_lines();
    return true;
  }
  for (device::Idle idle; !lines_there_.load(std::memory_order_acquire); idle())
    if (lines_lost_.load(std::memory_order_acquire)) return false;
  return true;
}

void CpuProgram::run_forward(std::size_t r) {
  const Region& region = context_.regions[r];
  context_.after_forward = false;
  if (r == 0) begin_forward();
  if (folds_by_region_) fold_units(region.units);
  exchange(context_.norm_statistics[r]);
  if (spec_.training)
    on_lanes([&](std::size_t lane) {
      for (const std::size_t u : region.units) runners_[u]->before_forward(lane);
    });
  on_chunks(region, [&](const Chunk& chunk) {
    for (const std::size_t u : region.units) runners_[u]->forward(chunk);
  });
  for (const std::size_t u : region.units) runners_[u]->after_forward();
  send(context_.made_values[r]);
  if (r + 1 == context_.regions.size()) wait_for_lines();  // another slot may be next
}

void CpuProgram::run_again(std::size_t r) {
  const Region& region = context_.regions[r];
  context_.after_forward = true;
  const std::optional<std::size_t> kept = lifetimes_->cut_in(r);
  on_lanes([&](std::size_t lane) {
    for (const std::size_t u : region.units)
      if (u != kept) runners_[u]->before_again(lane);
  });
  on_chunks(region, [&](const Chunk& chunk) {
    for (const std::size_t u : region.units)
      if (u != kept) runners_[u]->forward_again(chunk);
  });
  send(context_.made_values[r]);
}

/// Micro-batches take the places of what is late in turn: they end in the order in which they
/// begin.
void CpuProgram::take_late() {
  check(begun_ - ended_ < spec_.weights_later,
        fmt::format("more than {} wait for their weight gradients",
                    counted(spec_.weights_later, "micro-batch")));
  context_.late_of_slot[context_.slot] = begun_++ % spec_.weights_later;
}

void CpuProgram::run_weights(std::size_t r, bool accumulate) {
  const Region& region = context_.regions[r];
  context_.after_forward = true;
  for (const std::size_t u : region.units) runners_[u]->before_weights(accumulate);
  on_chunks(region, [&](const Chunk& chunk) {
    for (const std::size_t u : region.units) runners_[u]->recompute(chunk);
    for (const std::size_t u : region.units) runners_[u]->make_weights(chunk);
  });
  on_lanes([&](std::size_t lane) {
    for (const std::size_t u : region.units) runners_[u]->after_weights(lane);
  });
}

void CpuProgram::run_backward(std::size_t r, bool accumulate) {
  const Region& region = context_.regions[r];
  context_.after_forward = true;
  const auto each_unit = [&](const auto& call) {
    for (std::size_t i = region.units.size(); i-- > 0;) call(*runners_[region.units[i]]);
  };
  exchange(context_.norm_sums[r]);
  on_lanes([&](std::size_t lane) {
    each_unit([&](Runner& runner) { runner.before_backward(lane, accumulate); });
  });
  send(context_.output_gradients[r]);
  on_chunks(region, [&](const Chunk& chunk) {
    for (const std::size_t u : region.units) runners_[u]->recompute(chunk);
    each_unit([&](Runner& runner) { runner.backward(chunk); });
  });
  send(context_.made_gradients[r]);
  if (r == 0) wait_for_lines();
  on_lanes([&](std::size_t lane) {
    each_unit([&](Runner& runner) { runner.after_backward(lane, accumulate); });
  });
}

}  // namespace lockstep::cpu
