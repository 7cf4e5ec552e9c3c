#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/nn/resnet.hpp"

/// PyTorch's own training records (../shared/reference) and the tools to repeat them.
namespace lockstep::test {
using namespace lockstep::backend;

using Values = std::vector<double>;

/// One of the records' files.
class Records {
 public:
  explicit Records(const std::string& path);
  ~Records();
  Values read(const std::string& name) const;
  bool has(const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The path of a record. If it does not exist, prints why the test is skipped and returns nothing.
std::optional<std::string> reference(const std::string& name);

/// |a - b| / |b|, NaN if anything is.
double distance(const Values& a, const Values& b);
void append(Values& to, const Values& from);
Values batch(const Values& all, std::size_t k, std::size_t count);  ///< the k-th `count` values

/// "layer2.0.conv1.weight" -> "body/3/c1/weight": ResNet-20's record has its own names.
std::string record_name(const std::string& name);

/// A network, its state and one program, as a trainer of one rank holds them.
struct Bench {
  Bench(const nn::ResNetSpec& model, std::size_t rows, std::unique_ptr<Backend> on,
        Precision precision = Precision::fp32, const LossSpec& loss = {});
  void import(Part part, const std::function<Values(const nn::Tensor&)>& read);
  Values export_slice(Part part, std::size_t s) const;
  void load(Program& target, const Values& x, const Values& y);
  double gradients(const Values& x, const Values& y, float lr);  ///< forward, backward; mean loss
  double step(const Values& x, const Values& y, float lr, float decay = 1e-4f);
  /// The same for what `targets` and `wanted` say.
  double gradients(const Values& x, float lr);
  double step(const Values& x, float lr);
  /// The same for a batch of what the program takes.
  double gradients(const data::Batch& loaded, float lr);
  double step(const data::Batch& loaded, float lr);
  Values logits(const Program& from) const;
  const nn::ArenaLayout& layout() const { return parameters->layout(); }
  std::size_t slice(const std::string& name) const;

  nn::Network network;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Program> program, evaluation;
  optim::StepScalars scalars;
  std::vector<float> images;
  std::vector<data::Target> targets;
  std::vector<float> wanted;  ///< of labels and values

 private:
  double run(float lr);
  void update(float decay);
};

/// The tensors of one group of ResNet-20's record.
std::function<Values(const nn::Tensor&)> reading(const Records& records, const std::string& group);

/// The weights and images of ResNet-50's record come from this generator.
std::vector<float> generated(std::size_t tensor, std::size_t count, float scale);
void import_resnet50(Bench& bench);

struct GradientDistance {
  double whole = 0, worst_tensor = 0;
};
/// The distance of ResNet-50's gradients, as left by bench.gradients(), from the record's.
GradientDistance resnet50_gradient_distance(const Bench& bench, const Records& records);

/// Corrects for one of the record's pre-activations that is 2.5e-7, below fp32's rounding. On some
/// processors, in PyTorch as well, its ReLU falls on the other side than in the record, and the
/// gradients are those of another function. This finds the channel by the gradient of its batch
/// norm's shift, moves that shift by `nudge` to the side where the gradient matches the record, and
/// computes the gradients again; up to `most` times. Returns how often. It cannot hide a wrong
/// gradient.
std::size_t unflip_resnet50(Bench& bench, const Records& records, const Values& x, const Values& y,
                            std::size_t most = 4, float nudge = 1e-5f);

}  // namespace lockstep::test
