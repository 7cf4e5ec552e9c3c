#include "serve/batching/batcher.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/core.h>

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

}  // namespace

Batcher::~Batcher() {
  for (const auto& lane : lanes_)
    for (const auto& job : lane->waiting) tell(*job, RowsJob::End::failed);
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
    lane->waiting.push_back(std::move(job));
  }
  something_.notify_one();
  return true;
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

/// The next lane with rows; each has its turn. Forgets those that no one can reach.
std::shared_ptr<Lane> Batcher::next_lane() {
  std::erase_if(lanes_, [](const std::shared_ptr<Lane>& lane) {
    return lane->waiting.empty() && lane.use_count() == 1;
  });
  for (std::size_t tried = 0; tried < lanes_.size(); ++tried) {
    std::rotate(lanes_.begin(), lanes_.begin() + 1, lanes_.end());
    if (!lanes_.back()->waiting.empty()) return lanes_.back();
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
  return batch;
}

void Batcher::turn(double patience_s) {
  {
    std::unique_lock lock(mutex_);
    const auto waits = [](const std::shared_ptr<Lane>& lane) { return !lane->waiting.empty(); };
    if (tasks_.empty() && std::none_of(lanes_.begin(), lanes_.end(), waits))
      something_.wait_for(lock, std::chrono::duration<double>(patience_s));
  }
  end_late(now_s());
  std::shared_ptr<Lane> lane;
  std::vector<Part> batch;
  std::function<void()> task;
  {
    const std::scoped_lock lock(mutex_);
    lane = next_lane();
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
  for (const auto& [job, first, rows] : batch)
    if (first + rows == job->rows)
      tell(*job, job->failed ? RowsJob::End::failed : RowsJob::End::computed);
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
  lane.statistics->change([&](ModelFigures& figures) {
    std::size_t rows = 0;
    for (const Part& part : batch) {
      rows += part.rows;
      if (part.first == 0) figures.queue.add(began_s - part.job->arrived_s);
    }
    figures.rows += rows;
    figures.compute.add(took_s);
    figures.batches[rows].add(took_s);
    figures.last_s = at_s;
    backend::add_figures(figures.members, lane.model->take_figures());
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
