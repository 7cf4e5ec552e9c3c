#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/support/networks/sketch.hpp"

namespace lockstep::test {

/// The logits of a case's first rows, as many as the program has.
inline std::vector<float> forward_logits(Program& program, const Case& c) {
  const std::size_t rows = program.spec().batch;
  const std::vector<float> images(
      c.images.begin(),
      c.images.begin() + static_cast<std::ptrdiff_t>(rows * c.network.input.count()));
  program.load_normalised(images, std::span(c.targets).first(rows));
  for (const TapeStep& step : program.forward()) step.run();
  std::vector<float> logits(rows * c.network.classes);
  program.copy_logits(logits);
  return logits;
}

/// How the CPU backend evaluates.
struct EvaluationOptions {
  Precision precision = Precision::fp32;
  Winograd::Mode winograd = Winograd::Mode::never;
  std::size_t threads = 2, chunk_bytes = CpuBackendSpec{}.chunk_bytes;
};

/// A case's evaluation, whose running statistics are those of the case's batch, so that it has to
/// give what training's forward gives.
class Evaluation {
 public:
  Evaluation(const Case& c, std::size_t rows, const EvaluationOptions& options)
      : compiled_(
            c, rows,
            make_cpu_backend({std::vector<std::vector<int>>(options.threads), options.chunk_bytes}),
            options.precision, false, false, {options.winograd, {}}) {
    ProgramSpec spec = compiled_.program->spec();
    spec.training = false;
    program_ = compiled_.backend->compile(c.network, spec, *compiled_.parameters);
    for (std::size_t s = layout().learned_slices; s < layout().slices.size(); ++s) {
      const nn::Tensor& tensor = layout().slices[s].tensor;
      const nn::Node& node = c.network.nodes[tensor.node];
      const auto n = static_cast<double>(c.targets.size() * node.shape.height * node.shape.width);
      std::vector<float> values;
      for (std::size_t i = 0; i < tensor.count(); ++i)
        values.push_back(
            static_cast<float>(tensor.role == nn::Role::running_mean
                                   ? c.oracle.batch_mean(node.name)[i]
                                   : c.oracle.batch_variance(node.name)[i] * (n - 1) / n));
      compiled_.parameters->import_slice(Part::weights, s, values);
    }
  }

  const nn::ArenaLayout& layout() const { return compiled_.parameters->layout(); }

  std::vector<float> logits(const Case& c) { return forward_logits(*program_, c); }

  /// Of evaluation, and of training before it.
  std::size_t bytes() const { return program_->memory().activations; }
  std::size_t training_bytes() const { return compiled_.program->memory().activations; }

  void train(const Case& c) { compiled_.run(c, 0, false); }

  /// Multiplies one value of a tensor.
  void multiply(const std::string& name, std::size_t index, float factor) {
    const std::size_t s = static_cast<std::size_t>(&layout().find(name) - layout().slices.data());
    std::vector<float> values = compiled_.exported(Part::weights, s);
    values[index] *= factor;
    compiled_.parameters->import_slice(Part::weights, s, values);
  }

 private:
  Compiled compiled_;
  std::unique_ptr<Program> program_;
};

}  // namespace lockstep::test
