#include "serve/predictor.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "lockstep/backend/answers.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/data/loading/loader.hpp"
#include "lockstep/serve/predict_job.hpp"

namespace lockstep::serve {

/// Some rows of all, as a loader's source. It may take black images for rows that cannot be read.
class PieceRows final : public data::RowSource {
 public:
  PieceRows(const InputRows& rows, const Piece& piece, bool skip)
      : rows_(rows), first_(piece.first), skip_(skip), info_(rows.info()) {
    info_.rows = piece.rows;
    info_.task = data::Task::classes;  // what is wanted of other outputs is not asked
  }
  const data::DataSetInfo& info() const override { return info_; }
  std::int32_t label(std::size_t row) const override { return rows_.label(first_ + row); }
  bool prepare(std::size_t row) const override { return rows_.prepare(first_ + row); }
  std::size_t usual_readahead(const data::LoaderSpec& loader) const override {
    return rows_.usual_readahead(loader);
  }
  data::MakeRow row_maker() const override {
    return [this, make = rows_.row_maker()](std::uint64_t epoch, std::size_t row,
                                            std::span<std::uint8_t> image) {
      try {
        make(epoch, first_ + row, image);
      } catch (const InputError& error) {
        if (!skip_) throw;
        std::memset(image.data(), 0, image.size());
        const std::lock_guard lock(mutex_);
        unread_[row] = error.what();
      }
    };
  }
  /// REQUIRES: the loader has given the row's batch away.
  std::optional<std::string> why_unread(std::size_t row) const {
    const std::lock_guard lock(mutex_);
    const auto found = unread_.find(row);
    return found == unread_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  const InputRows& rows_;
  const std::size_t first_;
  const bool skip_;
  data::DataSetInfo info_;
  mutable std::mutex mutex_;
  mutable std::map<std::size_t, std::string> unread_;
};

namespace {

void choose_none(std::size_t top, Predictions& result) {
  result.top_class.insert(result.top_class.end(), top, -1);
  result.top_probability.insert(result.top_probability.end(), top,
                                std::numeric_limits<float>::quiet_NaN());
}

/// The likeliest classes; none if any output is not a number, or infinite: it has no probability.
void choose_top(std::span<const float> logits, std::size_t top, Predictions& result) {
  if (std::any_of(logits.begin(), logits.end(), [](float logit) { return !std::isfinite(logit); }))
    return choose_none(top, result);
  const std::vector<float> probabilities = backend::answers_of({}, logits);
  for (const std::size_t k : likeliest(logits, top)) {
    result.top_class.push_back(static_cast<std::int32_t>(k));
    result.top_probability.push_back(probabilities[k]);
  }
}

/// Each label's probability, or each value; none of a row without outputs.
void add_outputs(const PredictorSpec& spec, std::span<const float> outputs, Predictions& result) {
  const std::vector<float> none(spec.classes, std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> said = outputs.empty() ? none : backend::answers_of(spec.said, outputs);
  std::vector<float>& column = spec.columns.values > 0 ? result.value : result.probability;
  column.insert(column.end(), said.begin(), said.end());
}

}  // namespace

struct Predictor::Begun {
  Piece piece;
  PieceRows rows;
  data::Loader loader;

  Begun(const Piece& which, const InputRows& all, const PredictorSpec& spec, device::Device& device)
      : piece(which), rows(all, which, spec.skip_unread), loader(rows, loading(spec), device) {}

  data::LoaderSpec loading(const PredictorSpec& spec) const {
    data::LoaderSpec loader_spec;
    loader_spec.sampler = {.rows = piece.rows,
                           .global_batch = spec.batch,
                           .shuffle = data::Shuffle::none,
                           .keep_last = true};
    loader_spec.workers = spec.workers;
    loader_spec.epochs = 1;
    loader_spec.bind_worker = spec.bind_worker;
    return loader_spec;
  }
};

Predictor::Predictor(const PredictorSpec& spec, infer::Classifier& model, device::Device& device,
                     const InputRows& rows)
    : spec_(spec), model_(model), device_(device), rows_(rows) {}

Predictor::~Predictor() = default;

void Predictor::begin(const Piece& piece) {
  begun_.push_back(std::make_unique<Begun>(piece, rows_, spec_, device_));
}

std::optional<Predictions> Predictor::finish(const std::function<void()>& begin_next,
                                             const std::function<bool()>& stop) {
  check(!begun_.empty(), "a piece that was begun");
  const std::unique_ptr<Begun> now = std::move(begun_.front());
  begun_.pop_front();
  constexpr std::size_t few = 4;  // as many as a loader reads ahead
  Predictions result;
  result.columns = spec_.columns;
  const std::size_t batches = now->loader.sampler().batches();
  for (std::size_t b = 0; b < batches; ++b) {
    if (stop()) return std::nullopt;
    if (b + std::min(few, batches) == batches) begin_next();
    data::Batch batch = now->loader.next();
    batch.targets = nullptr;  // nothing is counted
    model_.run(batch);
    take(batch, *now, result);
    now->loader.release(batch);
  }
  return result;
}

void Predictor::take(const data::Batch& batch, const Begun& begun, Predictions& result) {
  for (std::size_t r = 0; r < batch.rows; ++r) {
    const std::size_t inside = result.row.size(), row = begun.piece.first + inside;
    const std::span<const float> outputs = model_.logits(r);
    const std::span<const float> logits = outputs.first(spec_.classes);
    result.row.push_back(row);
    if (spec_.columns.name_bytes > 0) result.name.push_back(rows_.name(row));
    if (spec_.columns.labels) result.label.push_back(rows_.label(row));
    const auto reason = begun.rows.why_unread(inside);
    if (reason) result.unread.push_back({row, *reason});
    if (spec_.columns.top == 0)
      add_outputs(spec_, reason ? std::span<const float>() : logits, result);
    else if (reason)
      choose_none(spec_.columns.top, result);
    else
      choose_top(logits, spec_.columns.top, result);
    if (spec_.columns.logits > 0)
      result.logits.insert(result.logits.end(), logits.begin(), logits.end());
    if (spec_.columns.features > 0) {
      const auto features = outputs.subspan(spec_.classes);
      result.features.insert(result.features.end(), features.begin(), features.end());
    }
  }
}

std::vector<std::size_t> likeliest(std::span<const float> values, std::size_t top) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top), order.end(),
                    [&](std::size_t a, std::size_t b) {
                      return values[a] > values[b] || (values[a] == values[b] && a < b);
                    });
  order.resize(top);
  return order;
}

std::size_t add_features(model::Model& model) {
  nn::Network& network = model.about.network;
  const std::size_t last = network.nodes.back().inputs.at(0);
  nn::Node& layer = network.nodes.at(last);
  require(layer.op == nn::Op::linear,
          fmt::format("{}: has no features: it does not end with a linear layer", network.name));
  const std::size_t classes = layer.shape.channels;
  const std::size_t features = network.nodes.at(layer.inputs.at(0)).shape.count();
  for (model::Weight& weight : model.weights) {
    if (weight.tensor.node != last) continue;
    weight.tensor.shape.at(0) += features;
    const bool is_matrix = weight.tensor.role == nn::Role::linear_weight;
    weight.values.resize(weight.tensor.count());
    for (std::size_t k = 0; is_matrix && k < features; ++k)
      weight.values[(classes + k) * features + k] = 1;
  }
  layer.shape.channels += features;
  network.classes += features;
  network.nodes.back().shape = nn::output_shape(network, network.nodes.back());
  nn::validate(network);
  return features;
}

}  // namespace lockstep::serve
