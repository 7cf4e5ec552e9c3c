// Why a block of rows from a loader begins with an empty ring. While another arm ran, the loader
// filled its ring: those batches would seem to cost nothing. From an empty one, a loader that is
// too slow is waited for at once, and one that is fast enough soon runs ahead; the first steps do
// not count.
#include "study/doctor/examination.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/statistics.hpp"
#include "lockstep/train/ending/stop_signal.hpp"

namespace lockstep::study {
namespace {

constexpr std::size_t steps_before = 2, few_pairs = 3, least_pairs = 5, most_pairs = 200;

void add_ranks(std::vector<double>& sums, const std::vector<double>& more) {
  sums.resize(more.size());
  for (std::size_t rank = 0; rank < more.size(); ++rank) sums[rank] += more[rank];
}

}  // namespace

ResidentBatch::ResidentBatch(const data::Batch& sample, std::size_t row_bytes, std::size_t outputs,
                             std::size_t all_rows, std::size_t rows, device::Device& device)
    : global_rows(all_rows) {
  images = device.allocate_pinned(rows * row_bytes);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t from = row % sample.rows;
    std::memcpy(images.data() + row * row_bytes, sample.images + from * row_bytes, row_bytes);
    targets.push_back(sample.targets[from]);
    if (sample.wanted != nullptr)
      wanted.insert(wanted.end(), sample.wanted + from * outputs,
                    sample.wanted + (from + 1) * outputs);
  }
  if (sample.wanted != nullptr) batch.wanted = wanted.data();
  batch.images = reinterpret_cast<const std::uint8_t*>(images.data());
  batch.targets = targets.data();
  batch.rows = batch.capacity = rows;
}

Turns::Turns(comm::Control& control, std::function<std::size_t(std::uint64_t)> global_rows,
             double until_s)
    : control_(control),
      global_rows_(std::move(global_rows)),
      until_s_(until_s),
      began_s_(now_s()) {}

double Turns::slowest(const std::vector<double>& by_rank) {
  return *std::max_element(by_rank.begin(), by_rank.end());
}

double Turns::usual(const std::vector<double>& by_rank) { return lower_median(by_rank); }

/// Its time in ms. The rate is 0, so that all arms see the same weights for ever.
double Turns::one_step(const Arm& arm) {
  const double began_ms = now_ms();
  ++done_;
  if (arm.resident != nullptr) {
    arm.trainer.step(arm.resident->batch, arm.resident->global_rows, 0);
    if (arm.loader != nullptr && arm.loader->ready()) arm.loader->release(arm.loader->next());
  } else {
    const data::Batch batch = arm.loader->next();
    arm.trainer.step(batch, global_rows_(batch.index), 0);
    arm.loader->release(batch);
  }
  if (arm.together) control_.max({0.0}, "a step of the doctor");
  return now_ms() - began_ms;
}

std::vector<double> Turns::block(const Arm& arm) {
  if (arm.loader != nullptr)
    while (arm.loader->ready()) arm.loader->release(arm.loader->next());
  control_.barrier("a block of the doctor");
  for (std::size_t i = 0; i < steps_before; ++i) one_step(arm);
  double sum_ms = 0;
  for (std::size_t i = 0; i < steps_; ++i) sum_ms += one_step(arm);
  std::vector<double> by_rank(static_cast<std::size_t>(control_.world()), 0);
  by_rank.at(static_cast<std::size_t>(control_.rank())) = sum_ms / static_cast<double>(steps_);
  agree(by_rank);
  return by_rank;
}

/// All ranks get all ranks' times, rank 0's clock, and whether any has a stop signal.
void Turns::agree(std::vector<double>& by_rank) {
  std::vector<double> values = by_rank;
  values.push_back(train::stop_requested() ? 1 : 0);
  values.push_back(control_.rank() == 0 ? now_s() - began_s_ : 0);
  values = control_.max(values, "a block of the doctor");
  elapsed_s_ = values.back();
  values.pop_back();
  stopped_ = stopped_ || values.back() > 0;
  values.pop_back();
  by_rank = std::move(values);
}

Turns::Compared Turns::compare(const Side& a, const Side& b, double seconds) {
  const double until_s = std::min(elapsed_s_ + seconds, until_s_);
  Compared result;
  std::vector<double> differences, all_a, all_b;
  const auto more = [&](std::size_t rounds) {
    if (rounds > 0) differences.push_back(all_a.back() - all_b.back());
    if (stopped_ || rounds == most_pairs || (rounds >= few_pairs && elapsed_s_ >= until_s))
      return false;
    return rounds < least_pairs || !is_precise(estimate_difference(differences), mean(all_a));
  };
  take_turns(2, more, [&](std::size_t arm) {
    const Side& side = arm == 0 ? a : b;
    const std::vector<double> by_rank = block(side.arm);
    (arm == 0 ? all_a : all_b).push_back(side.value(by_rank) / side.rows);
    add_ranks(arm == 0 ? result.a_ranks : result.b_ranks, by_rank);
  });
  if (differences.empty()) return result;
  result.difference = estimate_difference(differences);
  result.a_ms = lower_median(all_a);
  result.b_ms = lower_median(all_b);
  const auto blocks = static_cast<double>(differences.size());
  for (double& ms : result.a_ranks) ms /= blocks;
  for (double& ms : result.b_ranks) ms /= blocks;
  return result;
}

}  // namespace lockstep::study
