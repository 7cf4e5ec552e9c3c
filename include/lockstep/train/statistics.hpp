#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "lockstep/backend/backend.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/model/model.hpp"

namespace lockstep::train {

/// What reestimate_statistics() does.
struct StatisticsSpec {
  backend::ProgramSpec program;  ///< batch: rows of a batch, all of them full
  std::size_t batches = 1;
  /// The next batch, with targets; it stays until the one after it is asked for.
  std::function<data::Batch()> next;
};

struct WithStatistics {
  std::unique_ptr<backend::Parameters> parameters;  ///< without momentum
  backend::Metrics metrics;                         ///< of all batches, in training
};

/// The model's weights on the backend, with new running statistics: the mean, over the batches, of
/// the mean and the unbiased variance that each batch norm finds in a batch in training. All
/// batches have the same share, as in stochastic weight averaging (Izmailov et al. 2018, section
/// 3.2; PyTorch's update_bn). Added up in double precision. Throws as Backend::compile() and `next`
/// do.
WithStatistics reestimate_statistics(const model::Model& model, backend::Backend& backend,
                                     const StatisticsSpec& spec);

}  // namespace lockstep::train
