#pragma once

// CUDA graphs: work that streams record instead of running it, and that a launch runs.

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace lockstep::emulated {

/// Pieces of work, each with those that precede it. A stream that records remembers which pieces
/// its next one follows.
class Recording {
 public:
  using Points = std::set<std::size_t>;  ///< pieces by number

  explicit Recording(cudaStream_t origin) : origin_(origin) { ends_[origin]; }
  cudaStream_t origin() const { return origin_; }
  void put(cudaStream_t stream, std::function<void()> run);
  /// An event that each launch records again.
  void stamp(cudaStream_t stream, cudaEvent_t event);
  const Points& end_of(cudaStream_t stream) { return ends_[stream]; }
  /// Later work of the stream, which records from now on, follows these pieces too.
  void follow(cudaStream_t stream, const Points& points);
  std::vector<cudaStream_t> streams() const;
  void spoil() { spoiled_ = true; }
  /// cudaSuccess, or why no graph can be made of it.
  cudaError_t judge() const;
  void begin_launch() const;
  /// Runs all pieces, in an order that the conditions choose among those allowed.
  void run() const;

 private:
  struct Piece {
    std::function<void()> run;
    Points after;
  };
  cudaStream_t origin_;
  std::vector<Piece> pieces_;
  std::map<cudaStream_t, Points> ends_;
  std::vector<cudaEvent_t> stamps_;
  bool spoiled_ = false;
};

}  // namespace lockstep::emulated

struct CUevent_st {
  std::shared_ptr<bool> done = std::make_shared<bool>(true);  ///< the newest record
  int asked = 0;
  std::shared_ptr<lockstep::emulated::Recording> recording;  ///< of the newest record, if any
  lockstep::emulated::Recording::Points point;               ///< in that recording
};
