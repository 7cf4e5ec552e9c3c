#include <algorithm>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "lockstep/data/batch.hpp"
#include "lockstep/data/loading/row_reader.hpp"
#include "lockstep/data/loading/sampler.hpp"
#include "study/doctor/differences.hpp"
#include "study/doctor/examination.hpp"

namespace lockstep::study {

/// The training as it is, against the same with rows that are in memory already; and what of that
/// is waiting, and what the loader's threads take from the step's cores.
void Examination::examine_input() {
  const char* what = "rows from the loader";
  if (over()) return not_measured(SlowReason::input, what, why_over());
  const Arm is = as_is(), none = held(*trainer_);
  const auto found = turns_.compare({is}, {none}, share_of_rest());
  SlowCause finding{.reason = SlowReason::input,
                    .what = what,
                    .cost = found.difference,
                    .not_measured = {},
                    .change = {}};
  if (!worth_changing(finding, diagnosis_.step_ms) || over()) return add(std::move(finding));
  const Arm thrown{.trainer = *trainer_, .resident = rows_.get(), .loader = loader_.get()};
  const Estimate wait = turns_.compare({is}, {thrown}, share_of_rest()).difference;
  const double cores_ms = found.difference.ms - wait.ms;
  finding.what = fmt::format("{:.2f} ms wait for rows, {:.2f} ms lost to the loader's threads; {}",
                             wait.ms, cores_ms, describe_rows());
  const std::size_t workers = loading_.workers;
  std::size_t best = workers;
  Estimate effect;
  for (const std::size_t other : {workers + 1, workers - 1}) {
    if (other == 0 || over()) continue;
    const Estimate gain = try_workers(other);
    if (gain.low <= 0 || gain.ms <= effect.ms) continue;
    best = other;
    effect = gain;
  }
  if (best != workers) {
    finding.change = fmt::format("--data.workers {}", best);
    finding.effect = effect;
  } else {
    finding.change = fmt::format(
        "neither one of the loader's {} threads more nor one less helps: data.stage, fewer "
        "augmentations, or more cores",
        workers);
  }
  add(std::move(finding));
}

/// How much shorter a step is with that many threads.
Estimate Examination::try_workers(std::size_t workers) {
  data::LoaderSpec spec = loading_;
  spec.workers = workers;
  data::Loader other(run_.data().training(), spec, run_.backend().device());
  const Arm is = as_is(), changed{.trainer = *trainer_, .loader = &other};
  turns_.block(changed);
  return turns_.compare({is}, {changed}, share_of_rest()).difference;
}

/// What one thread does for a row, by the clock, on this rank. The rows are those of a later epoch.
std::string Examination::describe_rows() const {
  constexpr std::size_t most = 64;
  const data::Sampler sampler(loading_.sampler);
  data::RowReader reader(run_.data().training(), loading_.augment);
  std::vector<std::uint8_t> image(reader.row_bytes());
  data::RowTimes times;
  reader.measure(&times);
  const std::size_t rows = std::min(most, sampler.batches() * loading_.sampler.global_batch);
  for (std::size_t i = 0; i < rows; ++i) {
    // Broken rows are the loader's to judge.
    try {
      reader.read(1, sampler.row(1, i), image);
    } catch (const data::BadRow&) {
      continue;
    }
  }
  const double us = 1e6 / static_cast<double>(rows);
  return fmt::format(
      "a row's reading takes {:.0f} us, decoding {:.0f}, cropping {:.0f}, effects "
      "{:.0f}",
      us * times.read_s, us * times.decode_s, us * times.shape_s, us * times.colour_s);
}

}  // namespace lockstep::study
