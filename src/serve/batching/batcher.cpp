#include "serve/batching/batcher.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep::serve {

namespace {

/// What fails there must not end the thread that computes.
void tell(RowsJob& job, RowsJob::End end) {
  try {
    const auto ended = std::move(job.ended);  // it may hold the job
    ended(end);
  } catch (const std::exception& error) {
    log::warn(fmt::format("a request could not be answered: {}", error.what()));
  }
}

bool is_whole(const Lane& lane) { return lane.waiting_rows >= lane.batch; }

/// How long a batch waits for those on their way, at most, and for what a client that got its
/// answer may ask next.
double most_patience_s(const Lane& lane) { return lane.whole_batch_s / 2; }
double turnaround_s(const Lane& lane) { return std::min(lane.whole_batch_s / 20, 1e-3); }

/// REQUIRES: something is on its way, or an answer has just left.
double waits_until_s(const Lane& lane) {
  if (lane.on_their_way > 0) return lane.patient_until_s;
  return std::min(lane.patient_until_s, lane.left_until_s);
}

}  // namespace

Passage::Passage(Batcher& batcher, std::shared_ptr<Lane> lane)
    : batcher_(batcher), lane_(std::move(lane)) {
  const std::scoped_lock lock(batcher_.mutex_);
  batcher_.count(*this, true);
  if (lane_->left == 0) return;
  --lane_->left;  // the others may come next
  lane_->left_until_s = now_s() + turnaround_s(*lane_);
}

void Passage::end() {
  const std::scoped_lock lock(batcher_.mutex_);
  if (ended_) return;
  batcher_.count(*this, false);
  ended_ = true;
  ++lane_->left;
  lane_->left_until_s = now_s() + turnaround_s(*lane_);
}

void Batcher::give_up() {
  for (const auto& lane : lanes_) {
    for (const auto& job : lane->waiting) tell(*job, RowsJob::End::failed);
    lane->waiting.clear();  // they may hold the lane itself
    lane->waiting_rows = 0;
  }
}

/// REQUIRES: the lock.
void Batcher::count(Passage& passage, bool on_its_way) {
  Lane& lane = *passage.lane_;
  if (passage.ended_ || passage.counted_ == on_its_way) return;
  passage.counted_ = on_its_way;
  if (on_its_way) {
    passage.round_ = lane.round;
    ++lane.on_their_way;
  } else if (passage.round_ == lane.round && --lane.on_their_way == 0 && !lane.waiting.empty()) {
    something_.notify_one();
  }
}

void Batcher::add(std::shared_ptr<Lane> lane) {
  const std::scoped_lock lock(mutex_);
  lanes_.push_back(std::move(lane));
}

bool Batcher::put(const std::shared_ptr<Lane>& lane, std::shared_ptr<RowsJob> job) {
  {
    const std::scoped_lock lock(mutex_);
    if (lane->waiting_rows + job->rows > most_waiting_rows_) return false;
    lane->waiting_rows += job->rows;
    job->logits.resize(job->rows * lane->classes);
    if (job->passage) count(*job->passage, false);
    lane->waiting.push_back(std::move(job));
    const bool others_come = lane->on_their_way + lane->left > 0;
    if (lane->waiting.size() > 1 && others_come && !is_whole(*lane)) return true;
  }
  something_.notify_one();
  return true;
}

void Batcher::forget(Lane& lane, const std::shared_ptr<RowsJob>& job) {
  std::function<void(RowsJob::End)> ended;  // it may hold the job
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(lane.waiting, job);
  if (found == lane.waiting.end() || job->begun > 0) return;
  lane.waiting_rows -= job->rows;
  lane.waiting.erase(found);
  ended = std::move(job->ended);
}

void Batcher::between_batches(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  something_.notify_one();
}

std::size_t Batcher::waiting_rows(const Lane& lane) const {
  const std::scoped_lock lock(mutex_);
  return lane.waiting_rows;
}

double Batcher::longest_wait_s(const Lane& lane) const {
  const std::scoped_lock lock(mutex_);
  return most_patience_s(lane);
}

/// Whether a batch of it may start. Gives up those on their way when it has waited long enough.
/// REQUIRES: the lock.
bool Batcher::is_ready(Lane& lane, double now_s) {
  if (lane.waiting.empty()) {
    lane.patient_until_s = 0;
    return false;
  }
  if (now_s >= lane.left_until_s) lane.left = 0;
  if (is_whole(lane) || lane.on_their_way + lane.left == 0) return true;
  if (lane.patient_until_s == 0) lane.patient_until_s = now_s + most_patience_s(lane);
  if (now_s < waits_until_s(lane)) return false;
  ++lane.round;
  lane.on_their_way = lane.left = 0;
  return true;
}

/// The next lane with a batch; each has its turn. Forgets those that no one can reach.
std::shared_ptr<Lane> Batcher::next_lane(double now_s) {
  std::erase_if(lanes_, [](const std::shared_ptr<Lane>& lane) {
    return lane->waiting.empty() && lane.use_count() == 1;
  });
  for (std::size_t tried = 0; tried < lanes_.size(); ++tried) {
    std::rotate(lanes_.begin(), lanes_.begin() + 1, lanes_.end());
    if (is_ready(*lanes_.back(), now_s)) return lanes_.back();
  }
  return nullptr;
}

std::vector<Batcher::Part> Batcher::take_batch(Lane& lane) {
  std::vector<Part> batch;
  std::size_t room = lane.batch;
  while (room > 0 && !lane.waiting.empty()) {
    const std::shared_ptr<RowsJob> job = lane.waiting.front();
    const std::size_t rows = std::min(room, job->rows - job->begun);
    batch.push_back({job, job->begun, rows});
    job->begun += rows;
    room -= rows;
    lane.waiting_rows -= rows;
    if (job->begun == job->rows) lane.waiting.pop_front();
  }
  lane.patient_until_s = 0;
  return batch;
}

/// Waits for a task or a batch that may start.
void Batcher::wait_for_batch(double patience_s) {
  std::unique_lock lock(mutex_);
  const double until_s = now_s() + patience_s;
  for (;;) {
    const double now = now_s();
    const auto ready = [&](const std::shared_ptr<Lane>& lane) { return is_ready(*lane, now); };
    if (!tasks_.empty() || std::ranges::any_of(lanes_, ready) || now >= until_s) return;
    double wake_s = until_s;
    for (const auto& lane : lanes_)
      if (!lane->waiting.empty()) wake_s = std::min(wake_s, waits_until_s(*lane));
    something_.wait_for(lock, std::chrono::duration<double>(wake_s - now));
  }
}

void Batcher::turn(double patience_s) {
  wait_for_batch(patience_s);
  end_late(now_s());
  std::shared_ptr<Lane> lane;
  std::vector<Part> batch;
  std::function<void()> task;
  {
    const std::scoped_lock lock(mutex_);
    lane = next_lane(now_s());
    if (lane) batch = take_batch(*lane);
    if (!tasks_.empty()) {
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
  }
  if (lane) compute(*lane, batch);
  if (task) task();
}

void Batcher::compute(Lane& lane, const std::vector<Part>& batch) {
  const double began_s = now_s();
  try {
    run(lane, batch);
  } catch (const std::exception& error) {
    log::warn(fmt::format("a batch failed: {}", error.what()));
    for (const Part& part : batch) part.job->failed = true;
  }
  account(lane, batch, began_s);
  count_ended(lane, batch, now_s() - began_s);
  for (const auto& [job, first, rows] : batch)
    if (first + rows == job->rows)
      tell(*job, job->failed ? RowsJob::End::failed : RowsJob::End::computed);
}

/// Their answers are written now, and then their clients may ask again.
void Batcher::count_ended(Lane& lane, const std::vector<Part>& batch, double took_s) {
  const std::scoped_lock lock(mutex_);
  std::size_t taken = 0;
  for (const Part& part : batch) taken += part.rows;
  // Smaller ones say little, unless only such come.
  lane.whole_batch_s = taken == lane.batch ? took_s : std::max(took_s, 0.98 * lane.whole_batch_s);
  for (const auto& [job, first, rows] : batch)
    if (first + rows == job->rows && job->passage) count(*job->passage, true);
}

void Batcher::run(Lane& lane, const std::vector<Part>& batch) {
  std::byte* to = lane.images.data();
  for (const auto& [job, first, rows] : batch) {
    std::memcpy(to, job->images.data() + first * lane.row_bytes, rows * lane.row_bytes);
    to += rows * lane.row_bytes;
  }
  const auto bytes = static_cast<std::size_t>(to - lane.images.data());
  lane.model->run({.images = reinterpret_cast<const std::uint8_t*>(lane.images.data()),
                   .rows = bytes / lane.row_bytes,
                   .capacity = lane.batch});
  std::size_t place = 0;
  for (const auto& [job, first, rows] : batch)
    for (std::size_t row = first; row < first + rows; ++row)
      std::ranges::copy(lane.model->logits(place++), job->logits.data() + row * lane.classes);
}

void Batcher::account(Lane& lane, const std::vector<Part>& batch, double began_s) {
  using namespace std::chrono;
  const double took_s = now_s() - began_s;
  const double at_s = duration<double>(system_clock::now().time_since_epoch()).count();
  for (const auto& [job, first, part_rows] : batch) {
    if (first == 0) job->waited_s = began_s - job->arrived_s;
    job->computed_s += took_s;
  }
  lane.statistics->change([&](ModelFigures& figures) {
    std::size_t rows = 0;
    for (const Part& part : batch) rows += part.rows;
    figures.rows += rows;
    figures.compute.add(took_s);
    figures.batches[rows].add(took_s);
    figures.last_s = at_s;
    infer::add_figures(figures.members, lane.model->take_figures());
  });
}

void Batcher::end_late(double now_s) {
  std::vector<std::shared_ptr<RowsJob>> late;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& lane : lanes_)
      std::erase_if(lane->waiting, [&](const std::shared_ptr<RowsJob>& job) {
        if (job->begun > 0 || job->deadline_s > now_s) return false;
        lane->waiting_rows -= job->rows;
        late.push_back(job);
        return true;
      });
  }
  for (const auto& job : late) tell(*job, RowsJob::End::late);
}

}  // namespace lockstep::serve
