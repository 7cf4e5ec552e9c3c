#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/text/numbers.hpp"
#include "lockstep/device/device.hpp"
#include "lockstep/infer/classifier.hpp"
#include "lockstep/serve/input_rows.hpp"
#include "serve/predictions/predictions.hpp"

namespace lockstep::serve {

/// Consecutive rows that one worker predicts at a time.
struct Piece {
  std::size_t number = 0, first = 0, rows = 0;
};

/// The pieces of some rows: they follow from the rows and the batch, never from the workers.
class Pieces {
 public:
  /// `each`: rows of a piece; 0: 4096, or fewer so that there are about 64 pieces. It becomes a
  /// multiple of the batch, so that only the last batch of all is padded.
  Pieces(std::size_t rows, std::size_t batch, std::size_t each) : rows_(rows) {
    const std::size_t usual = std::min<std::size_t>(4096, (rows + 63) / 64);
    each_ = std::max<std::size_t>(1, ((each > 0 ? each : usual) + batch - 1) / batch) * batch;
  }
  std::size_t rows_of_one() const { return each_; }
  std::size_t count() const { return (rows_ + each_ - 1) / each_; }
  Piece piece(std::size_t number) const {
    const std::size_t first = number * each_;
    return {number, first, std::min(each_, rows_ - first)};
  }

 private:
  std::size_t rows_, each_;
};

/// Where a swarm keeps its files.
struct SwarmFolder {
  std::filesystem::path root;
  std::filesystem::path claims() const { return root / "claims"; }
  std::filesystem::path parts() const { return root / "parts"; }
  std::filesystem::path part(std::size_t number) const {
    return parts() / fmt::format("part-{:06}.h5", number);
  }
  /// The piece that a part is of; nothing for another file.
  std::optional<std::size_t> number_of(const std::filesystem::path& file) const {
    const std::string name = file.filename().string();
    if (!name.starts_with("part-") || !name.ends_with(".h5")) return std::nullopt;
    const auto number = whole_number<std::uint64_t>(name.substr(5, name.size() - 8));
    return number && part(*number).filename() == file.filename() ? number : std::nullopt;
  }
  std::filesystem::path note() const { return root / "predict.json"; }
  std::filesystem::path merged() const { return root / "predictions.h5"; }
  std::filesystem::path csv() const { return root / "predictions.csv"; }
};

struct PredictorSpec {
  PredictionColumns columns;
  std::size_t classes = 0;  ///< of the network's outputs, those that are classes (or labels, or
                            ///< values) come first
  std::size_t batch = 1;
  std::size_t workers = 1;            ///< threads that read rows
  std::function<void()> bind_worker;  ///< see LoaderSpec
  bool skip_unread = false;     ///< a row that cannot be read gets class -1; else it is an error
  data::DataSetInfo said = {};  ///< see backend::answers_of()
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

}  // namespace lockstep::serve
