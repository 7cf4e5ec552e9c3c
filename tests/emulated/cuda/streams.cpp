#include "tests/emulated/cuda/streams.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "tests/emulated/cuda/gpu.hpp"

namespace lockstep::emulated {

namespace {

bool one_step(CUstream_st& stream) {
  if (stream.queue.empty()) return false;
  Work& next = stream.queue.front();
  if (next.behind && !*next.behind) return false;
  if (next.with) {
    next.with->begin();
    if (!next.with->done()) return false;
  }
  const Work work = std::move(next);
  stream.queue.pop_front();
  if (work.run) work.run();
  gpus().moved.notify_all();
  return true;
}

/// Runs all streams of the device but `last`, until none can continue.
void others_go(cudaStream_t last) {
  for (bool moved = true; moved;) {
    moved = false;
    for (const cudaStream_t stream : gpus().streams)
      if (stream != last && stream->device == last->device) moved = one_step(*stream) || moved;
  }
}

/// True when a stream's next work waits for other ranks.
bool meets_others() {
  return std::any_of(gpus().streams.begin(), gpus().streams.end(), [](cudaStream_t stream) {
    return !stream->queue.empty() && stream->queue.front().with;
  });
}

/// Nothing can continue: other threads have to do something first.
void wait_for_others() {
  check(meets_others(), "streams wait for one another, or for an event that is never recorded");
  constexpr std::chrono::milliseconds at_most{20};
  gpus().moved.wait_for(gpus().mutex, at_most);
}

/// Runs the work that `done` says is missing, in one stream and those that it waits for.
void go_until(cudaStream_t stream, const std::function<bool()>& done, bool wait) {
  if (conditions().streams == Streams::others_first) others_go(stream);
  while (!done()) {
    if (one_step(*stream)) continue;
    bool moved = false;
    for (const cudaStream_t other : gpus().streams) {
      if (other == stream) continue;
      moved = one_step(*other);
      if (moved) break;
    }
    if (moved) continue;
    if (!wait && meets_others()) return;
    wait_for_others();
  }
}

}  // namespace

Gpus& gpus() {
  static Gpus gpus;
  return gpus;
}

int& device_of_thread() {
  thread_local int device = 0;
  return device;
}

void finish(cudaStream_t stream) {
  go_until(
      stream, [&] { return stream->queue.empty(); }, true);
}

void finish_all() {
  // Waiting lets other ranks in, which may take their own streams away.
  std::vector<cudaStream_t> own;
  for (const cudaStream_t stream : gpus().streams)
    if (stream->device == device_of_thread()) own.push_back(stream);
  for (const cudaStream_t stream : own) finish(stream);
}

void run_until(const std::function<bool()>& done, bool wait) {
  while (!done()) {
    bool moved = false;
    for (const cudaStream_t stream : gpus().streams) moved = one_step(*stream) || moved;
    if (moved) continue;
    if (!wait && meets_others()) return;
    wait_for_others();
  }
}

void put(cudaStream_t stream, Work work) {
  check(gpus().streams.contains(stream),
        "work for a stream that does not exist, or for the default one");
  if (stream->recording) {
    check(!work.with, "a collective is recorded");
    return stream->recording->put(stream, std::move(work.run));
  }
  ++counts().calls;
  stream->queue.push_back(std::move(work));
  gpus().moved.notify_all();
  if (conditions().streams == Streams::eager)
    go_until(
        stream, [&] { return stream->queue.empty(); }, false);
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  const Lock lock;
  put(stream, {std::move(work)});
}

}  // namespace lockstep::emulated
