#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/device/device.hpp"
#include "lockstep/infer/classifier.hpp"
#include "lockstep/serve/input_rows.hpp"
#include "serve/piece.hpp"
#include "serve/predictions/predictions.hpp"

namespace lockstep::serve {

struct PredictorSpec {
  PredictionColumns columns;
  std::size_t classes = 0;  ///< of the network's outputs, those that are classes come first
  std::size_t batch = 1;
  std::size_t workers = 1;            ///< threads that read rows
  std::function<void()> bind_worker;  ///< see LoaderSpec
  bool skip_unread = false;  ///< a row that cannot be read gets class -1; else it is an error
};

/// Predicts pieces, one after the other. The rows of the next piece are read while the last batches
/// of the one before are computed. The references must outlive it.
/// **Thread safety:** none; one thread uses it.
class Predictor {
 public:
  Predictor(const PredictorSpec& spec, infer::Classifier& model, device::Device& device,
            const InputRows& rows);
  ~Predictor();
  /// Begins to read the piece's rows.
  void begin(const Piece& piece);
  /// Computes the piece that was begun first. Calls `begin_next` once, when few of its batches are
  /// left, and `stop` before each batch. Empty once that says true. Throws InputError naming a row
  /// that cannot be read.
  std::optional<Predictions> finish(const std::function<void()>& begin_next,
                                    const std::function<bool()>& stop);

 private:
  struct Begun;
  void take(const data::Batch& batch, const Begun& piece, Predictions& result);
  PredictorSpec spec_;
  infer::Classifier& model_;
  device::Device& device_;
  const InputRows& rows_;
  std::deque<std::unique_ptr<Begun>> begun_;
};

/// The `top` classes with the largest values, of equal ones the first. REQUIRES: all are numbers,
/// and there are as many.
std::vector<std::size_t> likeliest(std::span<const float> values, std::size_t top);

/// The softmax of the logits, computed in double.
std::vector<float> probabilities_of(std::span<const float> logits);

}  // namespace lockstep::serve
