#include "train/pipeline/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/device/idle.hpp"
#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/partition.hpp"

namespace lockstep::train {
namespace {

/// Messages advance at least this often while a device computes what this rank gives.
constexpr double longest_nap_s = 500e-6;

std::vector<std::string> names_of(const nn::ArenaLayout& layout) {
  std::vector<std::string> names;
  for (std::size_t s = 0; s < layout.moving_slices(); ++s)
    names.push_back(layout.slices[s].tensor.name);
  return names;
}

std::size_t place_of(const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  check(found != names.end(), name + " is not a tensor of the whole network");
  return static_cast<std::size_t>(found - names.begin());
}

/// In the order of a backend's, with frozen layers at the end.
nn::ArenaLayout layout_of(const nn::Network& network) {
  const auto plain = [](const nn::Tensor& tensor) { return tensor.count(); };
  nn::ArenaLayout layout = nn::arena_layout(nn::trained_part(network), plain);
  if (network.frozen_nodes == 0) return layout;
  const nn::ArenaLayout frozen = nn::arena_layout(nn::split_frozen(network).frozen, plain);
  layout.frozen_slices = frozen.slices.size();
  layout.slices.insert(layout.slices.end(), frozen.slices.begin(), frozen.slices.end());
  return layout;
}

/// The parts of a training's state that a slice of `layout` has; `like`: parameters of any stage.
std::vector<backend::Part> parts_of(const nn::ArenaLayout& layout, std::size_t slice, bool all,
                                    const backend::Parameters& like) {
  using enum backend::Part;
  std::vector<backend::Part> parts{weights};
  if (!all || slice >= layout.moving_slices()) return parts;
  if (like.has_average()) parts.push_back(average);
  if (slice >= layout.learned_slices) return parts;
  parts.push_back(momentum);
  if (like.has_second_moments()) parts.push_back(second_moments);
  return parts;
}

std::size_t slice_of(const nn::ArenaLayout& layout, const std::string& name) {
  const auto found = std::ranges::find_if(
      layout.slices, [&](const nn::Slice& slice) { return slice.tensor.name == name; });
  return static_cast<std::size_t>(found - layout.slices.begin());
}

}  // namespace

Pipeline::Pipeline(const PipelineSpec& spec, const nn::Network& whole, comm::Communicator& world,
                   const comm::GridAxis& stages)
    : spec_(spec), axis_(stages) {
  if (is_whole()) return;
  const auto count = static_cast<std::size_t>(stages.count);
  std::vector<nn::Network> parts = nn::split(whole, nn::balanced_cuts(whole, count, spec.work));
  for (const nn::Network& part : parts) layouts_.push_back(layout_of(part));
  own_ = std::move(parts[static_cast<std::size_t>(stages.index)]);
  names_ = names_of(layout_of(whole));
  stages_ = world.split(stages.colour(), stages.index, "stages");
  down_ = stages_->channel("stages, values");
  up_ = stages_->channel("stages, gradients");
  for (auto& way : given_) way.resize(slots());
  std::vector<std::vector<StagePiece>> all;
  for (std::size_t s = 0; s < count; ++s)
    all.push_back(schedule_of_stage(spec_.order, s, {count, spec_.micro_batches}));
  const std::string fault = fault_in(spec_.order, all, spec_.micro_batches);
  check(fault.empty(), fault);
}

std::string Pipeline::describe(const nn::Network& whole) const {
  if (is_whole()) return "";
  const auto count = static_cast<std::size_t>(axis_.count);
  std::vector<std::string> ends;
  std::size_t first = 0;
  double largest = 0;
  const auto take = [&](std::size_t end) {
    largest = std::max(largest, nn::training_work(whole, first, end, spec_.work));
    first = end;
  };
  for (const std::size_t cut : nn::balanced_cuts(whole, count, spec_.work)) {
    ends.push_back(whole.nodes[cut].name);
    take(cut + 1);
  }
  take(whole.nodes.size());
  const double all = nn::training_work(whole, 0, whole.nodes.size(), spec_.work);
  return fmt::format(
      "{} stages, cut after {}: the largest has {:.2f} times an even share of the work; {}, "
      "with {} in memory in the first stage",
      count, join(ends, ", "), largest * static_cast<double>(count) / all, choice_name(spec_.order),
      counted(slots_of_stage(spec_.order, 0, {count, spec_.micro_batches}), "micro-batch"));
}

std::size_t Pipeline::slots() const {
  return slots_of_stage(spec_.order, static_cast<std::size_t>(axis_.index),
                        {static_cast<std::size_t>(axis_.count), spec_.micro_batches});
}

std::size_t Pipeline::weights_later() const {
  return late_in_stage(spec_.order, static_cast<std::size_t>(axis_.index),
                       {static_cast<std::size_t>(axis_.count), spec_.micro_batches});
}

std::vector<StagePiece> Pipeline::pieces(std::size_t micro_batches) const {
  return schedule_of_stage(spec_.order, static_cast<std::size_t>(axis_.index),
                           {static_cast<std::size_t>(axis_.count), micro_batches});
}

void Pipeline::progress() {
  if (is_whole()) return;
  down_->progress();
  up_->progress();
}

namespace {

/// What is done while a stream waits for another event.
class Meantime final : public device::Event {
 public:
  Meantime(device::Event& event, const std::function<void()>& meanwhile)
      : event_(event), meanwhile_(meanwhile) {}
  bool done() override {
    if (event_.done()) return true;
    meanwhile_();
    return false;
  }
  double due_in_s() const override { return event_.due_in_s(); }

 private:
  device::Event& event_;
  const std::function<void()>& meanwhile_;
};

}  // namespace

/// The stream's next work needs what comes, or the memory that leaves.
void Pipeline::wait(comm::Communicator& on, device::Event& event, const Meanwhile& meanwhile) {
  const comm::Waiting waiting(on.activity);
  const Meanwhile all = [&] {
    progress();
    meanwhile();
  };
  Meantime meantime(event, all);
  compute_->wait(meantime);
}

void Pipeline::wait_for_gift(bool down, std::size_t slot, const Meanwhile& meanwhile) {
  if (const auto gift = std::exchange(given_[down].at(slot), nullptr))
    wait(channel(down), *gift, meanwhile);
}

data::Batch Pipeline::share_targets(const data::Batch& batch, std::size_t outputs,
                                    const Meanwhile& meanwhile) {
  if (is_whole() || batch.rows == 0 || !(is_first() || is_last())) return batch;
  targets_.resize(batch.rows);
  wanted_.resize(batch.rows * outputs);
  if (is_first()) {
    std::copy_n(batch.targets, targets_.size(), targets_.begin());
    if (outputs > 0) std::copy_n(batch.wanted, wanted_.size(), wanted_.begin());
  }
  for (const std::span<std::byte> bytes :
       {std::as_writable_bytes(std::span(targets_)), std::as_writable_bytes(std::span(wanted_))}) {
    if (bytes.empty()) continue;
    const comm::Elements data = comm::raw_elements(bytes);
    if (is_first())
      down_->send(data, axis_.count - 1, "targets of the rows", down_->network());
    else
      down_->receive(data, 0, "targets of the rows", down_->network());
  }
  auto end = down_->network().record();
  if (is_first()) {
    targets_left_ = std::move(end);
    return batch;
  }
  wait(*down_, *end, meanwhile);
  data::Batch mine = batch;
  mine.targets = targets_.data();
  mine.wanted = outputs > 0 ? wanted_.data() : nullptr;
  return mine;
}

void Pipeline::begin(std::vector<std::size_t> rows, device::Stream& compute) {
  rows_ = std::move(rows);
  compute_ = &compute;
  gradient_places_.clear();
  gradients_taken_ = 0;
}

void Pipeline::pass(const StagePiece& piece, backend::Program& program,
                    const Meanwhile& meanwhile) {
  if (is_whole()) return;
  using enum StagePiece::Do;
  switch (piece.what) {
    case take_values:
      return receive_values(piece.micro, program, meanwhile);
    case take_gradients:
      return receive_gradients(piece.micro, meanwhile);
    case give_values:
    case give_gradients:
      return give(piece, program, meanwhile);
    case forward:
    case backward:
      return wait_for_gift(piece.what == forward, piece.slot, meanwhile);
    case weight_gradients:
      return;
  }
}

std::string Pipeline::name_of(bool down, std::size_t micro, bool gives, int other) const {
  return fmt::format("{} of micro-batch {} {} stage {}", down ? "values" : "gradients", micro + 1,
                     gives ? "to" : "from", other + 1);
}

void Pipeline::give(const StagePiece& piece, backend::Program& program,
                    const Meanwhile& meanwhile) {
  const auto made = compute_->record();
  for (device::Idle idle; !made->done(); idle(std::min(made->due_in_s(), longest_nap_s))) {
    progress();
    meanwhile();
  }
  const bool down = piece.what == StagePiece::Do::give_values;
  const backend::Boundary boundary = down ? program.sent() : program.received();
  const int other = axis_.index + (down ? 1 : -1);
  comm::Communicator& on = channel(down);
  on.send(comm::raw_elements(down ? boundary.values : boundary.gradients), other,
          name_of(down, piece.micro, true, other), on.network());
  given_[down].at(piece.slot) = on.network().record_newest();
  if (!down) return;
  gradient_places_.push_back(boundary.gradients);
  expect_gradients();
}

void Pipeline::receive_values(std::size_t micro, backend::Program& program,
                              const Meanwhile& meanwhile) {
  const std::span<std::byte> to = program.received().values;
  const std::size_t row_bytes = to.size() / rows_.at(micro);
  if (!coming_[true]) expect_values(micro, row_bytes);
  wait(*down_, *std::exchange(coming_[true], nullptr), meanwhile);
  std::copy_n(landing_.begin(), to.size(), to.begin());
  if (micro + 1 < rows_.size()) expect_values(micro + 1, row_bytes);
}

void Pipeline::expect_values(std::size_t micro, std::size_t row_bytes) {
  landing_.resize(std::max(landing_.size(), rows_.at(micro) * row_bytes));
  const int other = axis_.index - 1;
  down_->receive(comm::raw_elements(std::span(landing_).first(rows_[micro] * row_bytes)), other,
                 name_of(true, micro, false, other), down_->network());
  coming_[true] = down_->network().record_newest();
}

void Pipeline::receive_gradients(std::size_t micro, const Meanwhile& meanwhile) {
  check(coming_[false] && micro == gradients_taken_, "gradients that nothing was given for");
  wait(*up_, *std::exchange(coming_[false], nullptr), meanwhile);
  ++gradients_taken_;
  expect_gradients();
}

/// Of the next micro-batch, once it has run forward.
void Pipeline::expect_gradients() {
  if (coming_[false] || gradients_taken_ == gradient_places_.size()) return;
  const int other = axis_.index + 1;
  up_->receive(comm::raw_elements(gradient_places_[gradients_taken_]), other,
               name_of(false, gradients_taken_, false, other), up_->network());
  coming_[false] = up_->network().record_newest();
}

void Pipeline::settle(const Meanwhile& meanwhile) {
  for (const bool down : {false, true})
    for (std::size_t slot = 0; slot < given_[down].size(); ++slot)
      wait_for_gift(down, slot, meanwhile);
  if (const auto left = std::exchange(targets_left_, nullptr)) wait(*down_, *left, meanwhile);
}

std::vector<std::string> Pipeline::all_slices(const nn::ArenaLayout& layout) const {
  return is_whole() ? names_of(layout) : names_;
}

/// Bits of numbers travel as integers, of which all but one are 0.
std::vector<double> Pipeline::of_all_slices(const std::vector<double>& own,
                                            const nn::ArenaLayout& layout) const {
  if (is_whole()) return own;
  std::vector<std::int64_t> bits(names_.size());
  for (std::size_t s = 0; s < std::min(own.size(), layout.moving_slices()); ++s)
    bits[place_of(names_, layout.slices[s].tensor.name)] = std::bit_cast<std::int64_t>(own[s]);
  stages_->all_reduce(comm::elements(bits.data(), bits.size()), comm::Reduction::sum,
                      "numbers of all slices", stages_->network());
  stages_->network().synchronize();
  std::vector<double> all;
  for (const std::int64_t one : bits) all.push_back(std::bit_cast<double>(one));
  return all;
}

std::string Pipeline::of_all_stages(const std::string& own) const {
  if (is_whole()) return own;
  constexpr std::size_t longest = 64;
  check(own.size() <= longest, "a text of a stage is too long");
  std::string all(longest * static_cast<std::size_t>(axis_.count), ' ');
  std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(longest) * axis_.index);
  stages_->all_gather({all.data(), all.size(), comm::ElementType::i8}, "texts of all stages",
                      stages_->network());
  stages_->network().synchronize();
  std::string joined;
  for (std::size_t s = 0; s < static_cast<std::size_t>(axis_.count); ++s) {
    const std::string one = all.substr(s * longest, longest);
    joined += (s > 0 ? " " : "") + one.substr(0, one.find_last_not_of(' ') + 1);
  }
  return joined;
}

/// Each stage's slices in the order of its arena, which all know.
void Pipeline::gather(const backend::Parameters& own, backend::Parameters* to, bool all) const {
  check(!is_whole() && is_first() == (to != nullptr), "the first stage gathers the whole network");
  std::vector<float> plain;
  for (int stage = is_first() ? 0 : axis_.index;
       stage <= (is_first() ? axis_.count - 1 : axis_.index); ++stage) {
    const nn::ArenaLayout& layout = layouts_[static_cast<std::size_t>(stage)];
    for (std::size_t s = 0; s < layout.slices.size(); ++s)
      for (const backend::Part part : parts_of(layout, s, all, own)) {
        plain.resize(layout.slices[s].tensor.count());
        const comm::Elements data = comm::elements(plain.data(), plain.size());
        if (stage == axis_.index) own.export_slice(part, s, plain);
        if (!is_first()) stages_->send(data, 0, "state to stage 1", stages_->network());
        if (stage > axis_.index)
          stages_->receive(data, stage, "state of a stage", stages_->network());
        stages_->network().synchronize();
        if (to) to->import_slice(part, slice_of(to->layout(), layout.slices[s].tensor.name), plain);
      }
  }
}

namespace {

/// For all that `own` keeps.
std::unique_ptr<backend::Parameters> make_whole(const Whole& whole,
                                                const backend::Parameters& own) {
  auto made = whole.backend.make_parameters(whole.network, whole.precision);
  backend::initialise(whole.network, {whole.seed}, *made);
  if (own.has_average()) made->start_average();
  if (own.has_second_moments()) made->start_second_moments();
  return made;
}

}  // namespace

std::unique_ptr<backend::Parameters> gather_whole(const Whole& whole,
                                                  const backend::Parameters& own, Gathered what) {
  std::unique_ptr<backend::Parameters> to;
  if (whole.pipeline.is_first())
    to = what == Gathered::state ? make_whole(whole, own)
                                 : whole.backend.make_parameters(whole.network, whole.precision,
                                                                 backend::Keeps::weights);
  whole.pipeline.gather(own, to.get(), what == Gathered::state);
  return to;
}

void adopt_part(const Whole& whole, backend::Parameters& own,
                const std::function<void(backend::Parameters&)>& fill) {
  if (whole.pipeline.is_whole()) return fill(own);
  const auto all = make_whole(whole, own);
  fill(*all);
  std::vector<float> plain;
  const nn::ArenaLayout& layout = own.layout();
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    const std::size_t from = slice_of(all->layout(), layout.slices[s].tensor.name);
    for (const backend::Part part : parts_of(layout, s, true, own)) {
      plain.resize(layout.slices[s].tensor.count());
      all->export_slice(part, from, plain);
      own.import_slice(part, s, plain);
    }
  }
}

}  // namespace lockstep::train
