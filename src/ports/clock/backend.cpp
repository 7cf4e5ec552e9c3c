#include <sys/mman.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/backend/parameters.hpp"
#include "lockstep/backend/program.hpp"
#include "lockstep/backend/timed_tape.hpp"
#include "lockstep/backend/vectors.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/nn/partition.hpp"
#include "ports/clock/stream.hpp"

namespace lockstep::clock {
namespace {

/// Memory that looks as large as asked for and takes at most two megabytes: one block of it appears
/// again and again. Good only for values that mean nothing.
class FoldedMemory {
 public:
  FoldedMemory() = default;
  explicit FoldedMemory(std::size_t bytes);  ///< throws std::bad_alloc
  FoldedMemory& operator=(FoldedMemory&& other) noexcept;
  ~FoldedMemory();
  float* data() const { return static_cast<float*>(base_); }

 private:
  void* base_ = nullptr;
  std::size_t mapped_ = 0;
};

/// An arena whose values are all zero. What is imported is forgotten.
class ClockParameters final : public backend::Parameters {
 public:
  /// `update_ms`: of all learned slices.
  ClockParameters(const nn::Network& network, double update_ms);
  const nn::ArenaLayout& arena() const override { return layout_; }
  float* device_pointer(backend::Part part) override;
  void import_own(backend::Part part, std::size_t slice, std::span<const float> plain) override;
  void export_own(backend::Part part, std::size_t slice, std::span<float> plain) const override;
  void start_average() override { has_average_ = true; }
  bool has_average() const override { return has_average_; }
  void start_second_moments() override { has_second_moments_ = true; }
  bool has_second_moments() const override { return has_second_moments_; }
  std::uint32_t own_hash() const override { return 0; }

  double update_ms(std::size_t first, std::size_t last) const;  ///< of slices [first, last)

 private:
  nn::ArenaLayout layout_;
  double update_ms_;
  std::size_t learned_ = 0;  ///< floats of the slices that are updated
  FoldedMemory memory_[5];   // by part
  bool has_average_ = false, has_second_moments_ = false;
};

constexpr std::size_t fold = std::size_t{2} << 20;

void* must(void* address) {
  if (address == MAP_FAILED) throw std::bad_alloc();
  return address;
}

FoldedMemory::FoldedMemory(std::size_t bytes) : mapped_((bytes + fold - 1) / fold * fold) {
  if (mapped_ == 0) return;
  base_ = must(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  auto* start = static_cast<std::byte*>(base_);
  must(mmap(start, fold, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  // Of shared memory, an old size of 0 makes a second view of the same pages.
  for (std::size_t at = fold; at < mapped_; at += fold)
    must(mremap(start, 0, fold, MREMAP_MAYMOVE | MREMAP_FIXED, start + at));
}

FoldedMemory& FoldedMemory::operator=(FoldedMemory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

FoldedMemory::~FoldedMemory() {
  if (base_) munmap(base_, mapped_);
}

ClockParameters::ClockParameters(const nn::Network& network, double update_ms)
    : layout_(backend::plain_layout(network)), update_ms_(update_ms) {
  for (std::size_t s = 0; s < layout_.learned_slices; ++s) learned_ += layout_.slices[s].size;
  for (FoldedMemory& part : memory_) part = FoldedMemory(layout_.size * sizeof(float));
}

float* ClockParameters::device_pointer(backend::Part part) {
  return memory_[static_cast<std::size_t>(part)].data();
}

void ClockParameters::import_own(backend::Part, std::size_t slice, std::span<const float> plain) {
  const nn::Tensor& tensor = layout_.slices.at(slice).tensor;
  check(plain.size() == tensor.count(), tensor.name + ": wrong size on import");
}

void ClockParameters::export_own(backend::Part, std::size_t slice, std::span<float> plain) const {
  const nn::Tensor& tensor = layout_.slices.at(slice).tensor;
  check(plain.size() == tensor.count(), tensor.name + ": wrong size on export");
  std::fill(plain.begin(), plain.end(), 0.f);
}

double ClockParameters::update_ms(std::size_t first, std::size_t last) const {
  std::size_t floats = 0;
  for (std::size_t s = first; s < last; ++s) floats += layout_.slices.at(s).size;
  return update_ms_ * static_cast<double>(floats) / static_cast<double>(learned_);
}

/// A tape whose steps only take their time. Its results are zero: logits, losses, and what passes a
/// stage's boundaries.
class ClockProgram final : public backend::Program {
 public:
  /// `stream` must outlive the program.
  ClockProgram(const nn::Network& network, const backend::ProgramSpec& spec,
               const backend::TimedTape& times, ClockStream& stream);
  const backend::ProgramSpec& spec() const override { return spec_; }
  void select(std::size_t slot) override;
  void load(const data::Batch& batch) override;
  void load_normalised(std::span<const float> images,
                       std::span<const data::Target> targets) override;
  void set_scalars(const optim::StepScalars&) override {}
  const backend::Tape& forward() const override { return forward_; }
  const backend::Tape& backward(bool) const override { return backward_; }
  const backend::Tape& weight_gradients(bool) const override { return weights_; }
  backend::Boundary received() override { return at_boundary(received_); }
  backend::Boundary sent() override { return at_boundary(sent_); }
  backend::Metrics take_metrics() override;
  void copy_logits(std::span<float> logits) const override;
  backend::MemoryPlan memory() const override { return {.made_again = made_again_}; }

 private:
  /// Memory of one boundary, one block for each slot.
  struct Crossing {
    std::size_t value_bytes = 0;
    std::vector<std::vector<std::byte>> of_slot;
  };
  bool is_last() const { return sent_.of_slot.empty(); }  ///< of a network's stages
  backend::TapeStep make_step(const std::string& name, double ms, std::vector<std::size_t> slices);
  void make_backward(const nn::Network& network, const backend::TimedTape& times);
  Crossing make_crossing(const nn::Node& node, std::size_t gradients) const;
  backend::Boundary at_boundary(Crossing& crossing) const;

  backend::ProgramSpec spec_;
  ClockStream& stream_;
  backend::Tape forward_, backward_, weights_;
  double made_again_ = 0;
  Crossing received_, sent_;
  std::size_t slot_ = 0;
  backend::Metrics metrics_;
};

/// How long backward makes values again: those of all segments but the last, where a network is cut
/// so that forward takes about as long in each.
double ms_again(const nn::Network& network, const backend::Recompute& recompute,
                const backend::TimedTape& times) {
  using Mode = backend::Recompute::Mode;
  if (recompute.mode == Mode::none) return 0;
  require(recompute.mode == Mode::segments,
          "recompute: the clock backend has no memory to limit: give the number of segments");
  const std::vector<std::size_t> cuts = nn::cut_points(network);
  require(recompute.segments <= cuts.size() + 1,
          fmt::format("recompute = {}: {} can be cut into at most {} segments", recompute.segments,
                      network.name, cuts.size() + 1));
  const double share = 1 - 1 / static_cast<double>(recompute.segments);
  double before = 0, nearest = 0;
  for (std::size_t node = 0, cut = 0; node < times.forward.size() && cut < cuts.size(); ++node) {
    before += times.forward[node].ms;
    if (node != cuts[cut]) continue;
    ++cut;
    if (std::abs(before - share * times.forward_ms()) <
        std::abs(nearest - share * times.forward_ms()))
      nearest = before;
  }
  return nearest;
}

ClockProgram::ClockProgram(const nn::Network& network, const backend::ProgramSpec& spec,
                           const backend::TimedTape& times, ClockStream& stream)
    : spec_(spec), stream_(stream) {
  check(spec.batch > 0 && spec.slots > 0, "a program needs at least one row and one slot");
  for (const backend::TimedStep& step : times.forward)
    forward_.push_back(make_step(step.name, step.ms, step.final_slices));
  if (spec.training) make_backward(network, times);
  const nn::Node &first = network.nodes.front(), &last = network.nodes.back();
  if (first.op == nn::Op::receive)
    received_ = make_crossing(first, nn::readers(network).front().size());
  if (last.op == nn::Op::send) sent_ = make_crossing(last, last.gradients);
}

backend::TapeStep ClockProgram::make_step(const std::string& name, double ms,
                                          std::vector<std::size_t> slices) {
  return {name, [this, ms] { stream_.pass(ms); }, std::move(slices)};
}

void ClockProgram::make_backward(const nn::Network& network, const backend::TimedTape& times) {
  const double again_ms = ms_again(network, spec_.recompute, times);
  if (again_ms > 0) backward_.push_back(make_step("forward again", again_ms, {}));
  made_again_ = again_ms / times.forward_ms();
  for (const backend::TimedStep& step : times.backward) {
    const bool later = spec_.weights_later > 0 && step.weights_ms > 0;
    backward_.push_back(make_step(step.name, step.ms - (later ? step.weights_ms : 0),
                                  later ? std::vector<std::size_t>{} : step.final_slices));
    if (later)
      weights_.push_back(make_step(step.name + " weights", step.weights_ms, step.final_slices));
  }
}

ClockProgram::Crossing ClockProgram::make_crossing(const nn::Node& node,
                                                   std::size_t gradients) const {
  Crossing crossing{spec_.batch * node.shape.count() * backend::value_bytes(spec_.precision), {}};
  const std::size_t bytes = crossing.value_bytes * (1 + gradients);
  crossing.of_slot.assign(spec_.slots, std::vector<std::byte>(bytes));
  return crossing;
}

backend::Boundary ClockProgram::at_boundary(Crossing& crossing) const {
  if (crossing.of_slot.empty()) return {};
  const std::span<std::byte> all = crossing.of_slot[slot_];
  return {all.first(crossing.value_bytes), all.subspan(crossing.value_bytes)};
}

void ClockProgram::select(std::size_t slot) {
  check(slot < spec_.slots, fmt::format("a program of {} slots has no slot {}", spec_.slots, slot));
  slot_ = slot;
}

void ClockProgram::load(const data::Batch& batch) {
  check(batch.capacity == spec_.batch,
        "the batch does not have the size that the program was compiled for");
  if (batch.targets != nullptr && is_last()) metrics_.rows += batch.rows;
}

void ClockProgram::load_normalised(std::span<const float>, std::span<const data::Target> targets) {
  for (const data::Target& target : targets) metrics_.rows += target.label_a >= 0 ? 1 : 0;
}

backend::Metrics ClockProgram::take_metrics() {
  stream_.synchronize();
  return std::exchange(metrics_, {});
}

void ClockProgram::copy_logits(std::span<float> logits) const {
  std::fill(logits.begin(), logits.end(), 0.f);
}

/// Memory of zeros, on which nothing is computed. It takes no time: a pace has no line for it.
class ClockVectors final : public backend::Vectors {
 public:
  backend::DeviceMemory allocate(std::size_t bytes, const std::string& what) override;
  void read(const void* from, std::span<std::byte> to) override;
  void write(std::span<const std::byte> from, void* to) override;
  void cast(const backend::Vector& from, const backend::Vector& to) override;
  void add(float factor, const backend::Vector& from, const backend::Vector& to) override;
  void scale(float factor, const backend::Vector& values) override;
  void largest(const backend::Vector& values, float* found) override;
  void multiply(const backend::Matrix& matrix, const backend::Thin& columns,
                const backend::Thin& product) override;
  void multiply_transposed(const backend::Matrix& matrix, const backend::Thin& rows,
                           const backend::Thin& product) override;
  void add_product(float keep, float factor, const backend::Thin& rows,
                   const backend::Thin& columns, const backend::Matrix& to) override;
  void orthogonalise(const backend::Thin& vectors) override;
};

backend::DeviceMemory ClockVectors::allocate(std::size_t bytes, const std::string&) {
  auto memory = std::make_shared<FoldedMemory>(bytes);
  auto* data = reinterpret_cast<std::byte*>(memory->data());
  return {data, [memory](std::byte*) mutable { memory.reset(); }};
}

void ClockVectors::read(const void*, std::span<std::byte> to) {
  std::fill(to.begin(), to.end(), std::byte{0});
}

void ClockVectors::write(std::span<const std::byte>, void*) {}

void ClockVectors::cast(const backend::Vector& from, const backend::Vector& to) {
  check_vectors(from, to, "cast");
}

void ClockVectors::add(float, const backend::Vector& from, const backend::Vector& to) {
  check_vectors(from, to, "add");
}

void ClockVectors::scale(float, const backend::Vector& values) { check_vector(values, "scale"); }

void ClockVectors::largest(const backend::Vector& values, float* found) {
  check_vector(values, "largest");
  *found = 0;
}

void ClockVectors::multiply(const backend::Matrix& matrix, const backend::Thin& columns,
                            const backend::Thin& product) {
  check_product(matrix, product, columns, "multiply");
}

void ClockVectors::multiply_transposed(const backend::Matrix& matrix, const backend::Thin& rows,
                                       const backend::Thin& product) {
  check_product(matrix, rows, product, "multiply_transposed");
}

void ClockVectors::add_product(float, float, const backend::Thin& rows,
                               const backend::Thin& columns, const backend::Matrix& to) {
  check_product(to, rows, columns, "add_product");
}

void ClockVectors::orthogonalise(const backend::Thin& vectors) {
  check_thin(vectors, "orthogonalise");
}

}  // namespace

namespace {

class ClockBackend final : public backend::Backend {
 public:
  explicit ClockBackend(const backend::Pace& pace) : pace_(pace) {}
  std::string name() const override { return "clock"; }
  std::string description() const override {
    return fmt::format("{}a rehearsal that waits instead of computing, {}",
                       backend::rehearsal_prefix, describe(pace_));
  }
  device::Device& device() override { return device_; }
  backend::Vectors& vectors() override { return vectors_; }

  std::unique_ptr<backend::Parameters> make_part_parameters(const nn::Network& network,
                                                            backend::Precision precision,
                                                            backend::Keeps) override {
    return std::make_unique<ClockParameters>(network,
                                             time_tape(network, 1, precision, pace_).update_ms);
  }
  std::unique_ptr<backend::Program> compile_part(const nn::Network& network,
                                                 const backend::ProgramSpec& spec,
                                                 backend::Parameters&) override {
    return std::make_unique<ClockProgram>(
        network, spec, time_tape(network, spec.batch, spec.precision, pace_, {.whole = spec.whole}),
        device_.compute());
  }
  std::vector<double> norms(const backend::Parameters& parameters, backend::Part) override {
    return std::vector<double>(parameters.arena().slices.size());
  }
  void clip_gradients(backend::Parameters&, float) override {}
  std::vector<double> gradient_squares(const backend::Parameters& parameters) override {
    return std::vector<double>(parameters.arena().slices.size());
  }
  void clip_by_norm(backend::Parameters&, float, double) override {}
  void update(backend::Parameters& parameters, const optim::UpdateRule&, const optim::StepScalars&,
              std::size_t first, std::size_t last) override {
    device_.compute().pass(static_cast<ClockParameters&>(parameters).update_ms(first, last));
  }
  void update_statistics(backend::Parameters&, std::size_t) override {}
  void update_average(backend::Parameters&, float) override {}
  void swap_average(backend::Parameters&) override {}

 private:
  backend::Pace pace_;
  ClockDevice device_;
  ClockVectors vectors_;
};

}  // namespace
}  // namespace lockstep::clock

namespace lockstep::backend {

std::unique_ptr<Backend> make_clock_backend(const Pace& pace) {
  return std::make_unique<clock::ClockBackend>(pace);
}

}  // namespace lockstep::backend
