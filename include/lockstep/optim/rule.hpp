#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/optim/lamb.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/optim/muon.hpp"
#include "lockstep/optim/sgd.hpp"

namespace lockstep::optim {

/// The rules that backends know. Each is plain data in a separate header, with what it means for
/// one weight.
using Formula = std::variant<Sgd, Lars, Lamb, Muon>;
enum class Rule { sgd, lars, lamb, muon };

/// Whether a rule keeps second moments of the gradients: one vector more than weights, gradients
/// and momentum.
constexpr bool has_second_moments(Rule rule) { return rule == Rule::lamb; }
inline bool has_second_moments(const Formula& formula) {
  return std::holds_alternative<Lamb>(formula);
}

/// A step's trust ratios of all adaptive slices, sorted.
struct TrustRatios {
  float smallest = 0, median = 0, largest = 0;
};

/// Of these ratios by slice, of which 0 stands for none; nothing where there is none.
inline std::optional<TrustRatios> spread_of(std::vector<double> ratios) {
  std::erase(ratios, 0);
  if (ratios.empty()) return std::nullopt;
  std::sort(ratios.begin(), ratios.end());
  const auto at = [&](std::size_t i) { return static_cast<float>(ratios[i]); };
  return TrustRatios{at(0), at((ratios.size() - 1) / 2), at(ratios.size() - 1)};
}

/// How the optimizer changes weights. Weight decay is per slice because biases and batch norm may
/// be exempt.
struct UpdateRule {
  Formula formula;
  std::vector<float> weight_decay;  ///< per slice of the arena; ignored for running statistics
  /// Per slice: 1, or 0 for batch norm's numbers and biases, whose rate no rule adapts, and for
  /// what Muon leaves to SGD.
  std::vector<float> adaptive = {};
  /// Per slice: multiplies the learning rate; empty: 1 for all.
  std::vector<float> rate = {};
};

/// The values that change from step to step; on a GPU they are in device memory.
struct StepScalars {
  float lr = 0;
  /// 1 / rows of the global batch: multiplies the loss gradient, so that gradients of all ranks and
  /// micro-batches simply add up.
  float gradient_scale = 1;
  /// This rank's rows / rows of the global batch (of one micro-batch): its weight in the averaged
  /// running statistics.
  float statistics_share = 1;
  float average_share = 0;  ///< how far the average moves towards the weights (optim/average.hpp)
  /// Steps before this one, skipped ones included, where the rule has second moments; else 0.
  std::uint64_t steps_done = 0;
  bool operator==(const StepScalars&) const = default;
};

}  // namespace lockstep::optim

template <>
struct lockstep::Choices<lockstep::optim::Rule> {
  using enum lockstep::optim::Rule;
  static constexpr Choice<lockstep::optim::Rule> all[] = {
      {sgd, "sgd"}, {lars, "lars"}, {lamb, "lamb"}, {muon, "muon"}};
};
