#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/observe/records.hpp"

namespace lockstep::observe {

/// What a line of progress says.
struct ProgressFigures {
  std::uint64_t epoch = 0, epochs = 0;  ///< the current one, from 1
  std::uint64_t step = 0, steps = 0;    ///< of the epoch
  double loss = 0, top1 = 0, lr = 0, images_per_s = 0;
  std::optional<double> left_s;  ///< of the run; empty: not known yet
  Scores scores = {};            ///< in place of top1, where the task is not classes
};

/// "epoch 3/90  step 17/468  loss 1.2345 ...": a line of a log.
std::string progress_text(const ProgressFigures& figures);

/// One line for a terminal, at most `columns` - 1 wide (40 to 200): a bar with the figures that
/// find room next to it, the most important first.
std::string progress_bar(const ProgressFigures& figures, int columns, bool colours);

}  // namespace lockstep::observe
