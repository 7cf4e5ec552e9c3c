#include "lockstep/backend/answers.hpp"

#include <cstddef>

#include "lockstep/backend/logits.hpp"
#include "lockstep/backend/output_loss.hpp"

namespace lockstep::backend {
namespace {

double answer_of(const data::DataSetInfo& said, std::size_t k, double output) {
  if (said.task == data::Task::labels) return arithmetic::sigmoid(output);
  return output * double{said.target_stddev.at(k)} + double{said.target_mean.at(k)};
}

}  // namespace

std::vector<float> answers_of(const data::DataSetInfo& said, std::span<const float> outputs) {
  if (said.task == data::Task::classes) {
    const std::vector<double> shares = probabilities_of(outputs);
    return {shares.begin(), shares.end()};
  }
  std::vector<float> answers;
  for (std::size_t k = 0; k < outputs.size(); ++k)
    answers.push_back(static_cast<float>(answer_of(said, k, outputs[k])));
  return answers;
}

}  // namespace lockstep::backend
