#include "tests/emulated/cuda/capture.hpp"

#include "tests/emulated/cuda/gpu.hpp"

namespace lockstep::emulated {

void Recording::put(cudaStream_t stream, std::function<void()> run) {
  pieces_.push_back({std::move(run), ends_[stream]});
  ends_[stream] = {pieces_.size() - 1};
}

void Recording::stamp(cudaStream_t stream, cudaEvent_t event) {
  stamps_.push_back(event);
  put(stream, [event] { *event->done = true; });
}

void Recording::follow(cudaStream_t stream, const Points& points) {
  ends_[stream].insert(points.begin(), points.end());
}

std::vector<cudaStream_t> Recording::streams() const {
  std::vector<cudaStream_t> found;
  for (const auto& [stream, points] : ends_) found.push_back(stream);
  return found;
}

cudaError_t Recording::judge() const {
  if (spoiled_) return cudaErrorStreamCaptureInvalidated;
  Points joined = ends_.at(origin_);
  for (std::size_t p = pieces_.size(); p-- > 0;)
    if (joined.contains(p)) joined.insert(pieces_[p].after.begin(), pieces_[p].after.end());
  for (const auto& [stream, points] : ends_)
    for (const std::size_t point : points)
      if (!joined.contains(point)) return cudaErrorStreamCaptureUnjoined;
  return cudaSuccess;
}

void Recording::begin_launch() const {
  for (const cudaEvent_t event : stamps_) {
    event->done = std::make_shared<bool>(false);
    event->recording.reset();
  }
}

void Recording::run() const {
  std::vector<std::size_t> missing;
  std::vector<std::vector<std::size_t>> followers(pieces_.size());
  Points ready;
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    missing.push_back(pieces_[p].after.size());
    for (const std::size_t before : pieces_[p].after) followers[before].push_back(p);
    if (missing[p] == 0) ready.insert(p);
  }
  const bool newest_first = conditions().streams != Streams::eager;
  while (!ready.empty()) {
    const std::size_t next = newest_first ? *ready.rbegin() : *ready.begin();
    ready.erase(next);
    pieces_[next].run();
    for (const std::size_t follower : followers[next])
      if (--missing[follower] == 0) ready.insert(follower);
  }
}

Counts& counts() {
  static Counts counts;
  return counts;
}

}  // namespace lockstep::emulated
