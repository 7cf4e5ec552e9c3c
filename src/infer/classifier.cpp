#include "lockstep/infer/classifier.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep::infer {

MemberFigures& MemberFigures::operator+=(const MemberFigures& more) {
  runs += more.runs;
  rows += more.rows;
  seconds += more.seconds;
  return *this;
}

void add_figures(std::vector<MemberFigures>& sum, const std::vector<MemberFigures>& more) {
  for (const MemberFigures& one : more) {
    const auto known = std::ranges::find(sum, one.name, &MemberFigures::name);
    if (known == sum.end())
      sum.push_back(one);
    else
      *known += one;
  }
}

Inference::Inference(backend::Backend& backend, const nn::Network& network,
                     const backend::ProgramSpec& spec, backend::Parameters& parameters)
    : backend_(backend), network_(network), spec_(spec), parameters_(parameters) {
  spec_.training = false;
  // So that losses with and without these compare.
  spec_.loss.smoothing = 0;
  spec_.loss.weights.clear();
  program_for(spec_.batch);
}

backend::Program& Inference::program_for(std::size_t rows) {
  std::unique_ptr<backend::Program>& program = programs_[rows];
  if (!program) {
    backend::ProgramSpec spec = spec_;
    spec.batch = rows;
    program = backend_.compile(network_, spec, parameters_);
  }
  return *program;
}

void Inference::run(const data::Batch& batch) {
  ran_ = &program_for(batch.capacity);
  logits_.clear();
  ran_->load(batch);
  for (const backend::TapeStep& step : ran_->forward()) step.run();
}

backend::Metrics Inference::take_metrics() {
  backend::Metrics sum;
  for (const auto& [rows, program] : programs_) sum += program->take_metrics();
  return sum;
}

std::span<const float> Inference::logits(std::size_t row) {
  check(ran_ != nullptr && row < ran_->spec().batch, "a row of a batch that was run");
  if (logits_.empty()) {
    logits_.resize(ran_->spec().batch * network_.classes);
    ran_->copy_logits(logits_);
  }
  return std::span(logits_).subspan(row * network_.classes, network_.classes);
}

}  // namespace lockstep::infer
