#include "backend/frozen/frozen_program.hpp"

#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::backend {

namespace {

comm::ElementType stored_type(Precision precision) {
  switch (precision) {
    case Precision::fp32:
    case Precision::tf32:
      return comm::ElementType::f32;
    case Precision::bf16:
      return comm::ElementType::bf16;
    case Precision::fp16:
      return comm::ElementType::f16;
  }
  throw Error("a precision without a type");
}

}  // namespace

FrozenProgram::FrozenProgram(const ProgramSpec& spec, std::unique_ptr<Program> frozen,
                             std::unique_ptr<Program> trained, Vectors& vectors)
    : spec_(spec), frozen_(std::move(frozen)), trained_(std::move(trained)), vectors_(vectors) {
  forward_ = frozen_->forward();
  forward_.push_back({"frozen values", [this] { hand_over(); }, {}});
  forward_.insert(forward_.end(), trained_->forward().begin(), trained_->forward().end());
}

void FrozenProgram::hand_over() {
  const std::span<std::byte> from = frozen_->sent().values, to = trained_->received().values;
  check(from.size() == to.size(), "the two sides of a boundary differ");
  const comm::ElementType type = stored_type(spec_.precision);
  const std::size_t count = from.size() / comm::bytes_of(type);
  vectors_.cast({from.data(), count, type}, {to.data(), count, type});
}

void FrozenProgram::select(std::size_t slot) {
  frozen_->select(slot);
  trained_->select(slot);
}

void FrozenProgram::load(const data::Batch& batch) {
  frozen_->load(batch);
  trained_->load(batch);
}

void FrozenProgram::prefetch(const data::Batch& batch) {
  frozen_->prefetch(batch);
  trained_->prefetch(batch);
}

void FrozenProgram::load_normalised(std::span<const float> images,
                                    std::span<const data::Target> targets) {
  frozen_->load_normalised(images, {});
  trained_->load_normalised({}, targets);
}

void FrozenProgram::set_input_place(std::size_t place) {
  frozen_->set_input_place(place);
  trained_->set_input_place(place);
}

MemoryPlan FrozenProgram::memory() const {
  MemoryPlan sum = frozen_->memory();
  const MemoryPlan more = trained_->memory();
  sum.activations += more.activations;
  sum.without_reuse += more.without_reuse;
  sum.workspace += more.workspace;
  sum.made_again = more.made_again;
  return sum;
}

}  // namespace lockstep::backend
