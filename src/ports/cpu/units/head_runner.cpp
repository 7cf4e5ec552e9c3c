#include "ports/cpu/units/head_runner.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "lockstep/backend/logits.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::cpu {

namespace {

/// C [rows, columns] = A x B + keep * C. A and B are row-major; 'T' as the letter means transposed.
void multiply(char ta, char tb, std::size_t rows, std::size_t columns, std::size_t inner,
              const float* a, std::size_t lda, const float* b, std::size_t ldb, float keep,
              float* result, std::size_t ldc) {
  const auto dim = [](std::size_t n) { return static_cast<dnnl_dim_t>(n); };
  const auto status = dnnl_sgemm(ta, tb, dim(rows), dim(columns), dim(inner), 1.f, a, dim(lda), b,
                                 dim(ldb), keep, result, dim(ldc));
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  check(status == dnnl_success, "oneDNN failed to multiply matrices");
}

}  // namespace

void HeadRunner::plan() {
  // The first call makes the machine code: now, while memory for it was looked for.
  float one = 0;
  if (!c.spec.planned) multiply('N', 'N', 1, 1, 1, &one, 1, &one, 1, 0, &one, 1);
  const nn::Node& node = c.network.nodes[unit.node];
  from_ = c.runners[*unit.input]->map;
  features_ = from_.shape.channels;
  pixels_ = from_.shape.height * from_.shape.width;
  classes_ = node.shape.channels;
  weights_ = c.parameters.find(backend::Part::weights, node.name + ".weight");
  bias_ = c.parameters.find(backend::Part::weights, node.name + ".bias");
  rows_.resize(c.spec.slots);
  for (HeadValues& rows : rows_) {
    rows.pooled.resize(c.spec.batch * features_);
    rows.logits.resize(c.spec.batch * classes_);
    if (c.spec.training) rows.dlogits.resize(rows.logits.size());
  }
  metrics_.resize(c.lanes);
  if (!c.spec.tile.is_whole()) plan_tiles();
  if (c.shares_rows) place_ = c.fixed_scratch(unit.level, c.spec.batch * features_ * sizeof(float));
  if (!c.spec.training) return;
  dweights_ = c.parameters.find(backend::Part::gradients, node.name + ".weight");
  dbias_ = c.parameters.find(backend::Part::gradients, node.name + ".bias");
  if (!unit.differentiates) return;
  dpooled_.resize(c.spec.batch * features_);
  place_ = c.scratch(c.units[*unit.input].level, from_);
}

/// Each tile averages its own lines of a row; all of them get those averages, and do the rest.
void HeadRunner::plan_tiles() {
  NormMessage& averages = c.norm_statistics[unit.level];
  const auto tell = [this](std::size_t lane, std::size_t lanes, float* to) {
    const nn::LineRange rows = nn::even_lines(c.spec.batch, lane, lanes),
                        own = c.spec.tile.of(from_.shape.height);
    const Chunk chunk{.region = unit.level, .lane = lane};
    for (std::size_t row = rows.first; row < rows.end(); ++row) {
      const nn::LineRange lines = own.after(row * from_.shape.height);
      c.kernels.average(c.runners[*unit.input]->value(chunk, lines), from_.pixels(lines), features_,
                        to + row * features_);
    }
  };
  averages_ = {&averages, averages.add_floats(c.spec.batch * features_, tell)};
}

/// The average of a row's pixels.
void HeadRunner::pool(std::size_t row, const std::byte* input, float* pooled) const {
  if (c.spec.tile.is_whole()) return c.kernels.average(input, pixels_, features_, pooled);
  const auto height = static_cast<double>(from_.shape.height);
  for (std::size_t i = 0; i < features_; ++i) {
    double sum = 0;
    for (std::size_t tile = 0; tile < c.spec.tile.count; ++tile) {
      const nn::LineRange its = nn::even_lines(from_.shape.height, tile, c.spec.tile.count);
      sum += averages_.message->floats(averages_.place, tile)[row * features_ + i] *
             static_cast<double>(its.count);
    }
    pooled[i] = static_cast<float>(sum / height);
  }
}

void HeadRunner::load(const data::Target* targets, const float* wanted) {
  check(targets != nullptr || !c.spec.training, "a batch to train on has targets");
  check(targets == nullptr || wanted != nullptr || c.spec.loss.task == data::Task::classes,
        "a batch with targets says what is wanted of its outputs");
  now().targets = targets;
  now().wanted = wanted;
}

// Where lanes share the rows, each averages all of them, for itself, and makes some classes.
void HeadRunner::forward(const Chunk& chunk) {
  float* pooled = c.shares_rows ? reinterpret_cast<float*>(c.lane_at(chunk.lane, place_))
                                : now().pooled.data() + chunk.first * features_;
  const std::byte* input = c.spec.tile.is_whole() ? c.runners[*unit.input]->value(chunk) : nullptr;
  for (std::size_t r = 0; r < chunk.count; ++r)
    pool(chunk.first + r, input + r * from_.bytes(), pooled + r * features_);
  const std::size_t lane = c.shares_rows ? chunk.lane : 0, lanes = c.shares_rows ? c.lanes : 1;
  float_kernels().linear({.x = pooled,
                          .weights = weights_,
                          .bias = bias_,
                          .rows = chunk.count,
                          .inputs = features_,
                          .first = classes_ * lane / lanes,
                          .last = classes_ * (lane + 1) / lanes,
                          .y = now().logits.data() + chunk.first * classes_,
                          .y_row = classes_});
  if (!c.shares_rows) judge(chunk.first, chunk.count, chunk.lane);
}

void HeadRunner::after_forward() {
  if (c.shares_rows) judge(0, c.spec.batch, 0);
}

void HeadRunner::judge(std::size_t first, std::size_t count, std::size_t lane) {
  if (now().targets == nullptr) return;
  backend::Metrics of_another_tile;
  backend::Metrics& metrics = speaks() ? metrics_[lane] : of_another_tile;
  for (std::size_t row = first; row < first + count; ++row)
    backend::row_loss(c.spec.loss, {now().logits.data() + row * classes_, classes_},
                      now().targets[row],
                      now().wanted != nullptr ? now().wanted + row * classes_ : nullptr,
                      c.scalars().gradient_scale, metrics,
                      c.spec.training ? now().dlogits.data() + row * classes_ : nullptr);
}

void HeadRunner::backward(const Chunk& chunk) {
  if (!unit.differentiates) return;
  multiply('N', 'N', chunk.count, features_, classes_,
           now().dlogits.data() + chunk.first * classes_, classes_, weights_, features_, 0,
           dpooled_.data() + chunk.first * features_, features_);
}

// Each lane takes some of the classes, for all rows.
void HeadRunner::after_backward(std::size_t lane, bool accumulate) {
  const std::size_t begin = classes_ * lane / c.lanes, end = classes_ * (lane + 1) / c.lanes;
  if (begin == end || (!speaks() && accumulate)) return;
  if (!speaks()) {
    std::fill_n(dweights_ + begin * features_, (end - begin) * features_, 0.f);
    std::fill_n(dbias_ + begin, end - begin, 0.f);
    return;
  }
  multiply('T', 'N', end - begin, features_, c.spec.batch, now().dlogits.data() + begin, classes_,
           now().pooled.data(), features_, accumulate ? 1 : 0, dweights_ + begin * features_,
           features_);
  for (std::size_t k = begin; k < end; ++k) {
    double sum = 0;
    for (std::size_t row = 0; row < c.spec.batch; ++row) sum += now().dlogits[row * classes_ + k];
    dbias_[k] = static_cast<float>(sum + (accumulate ? dbias_[k] : 0));
  }
}

const std::byte* HeadRunner::value(const Chunk&, const nn::LineRange& lines) {
  return reinterpret_cast<const std::byte*>(now().logits.data() + lines.first * classes_);
}

// A chunk is some images, or some lines of one.
const std::byte* HeadRunner::input_gradient(const Chunk& chunk) {
  std::byte* spread = c.lane_at(chunk.lane, place_);
  const nn::LineRange own = from_.of(chunk);
  for (std::size_t line = own.first; line < own.end();) {
    const std::size_t image = line / from_.shape.height;
    const std::size_t count = std::min((image + 1) * from_.shape.height, own.end()) - line;
    c.kernels.spread(dpooled_.data() + image * features_, 1.f / static_cast<float>(pixels_),
                     count * from_.shape.width, features_,
                     spread + (line - own.first) * from_.line_bytes);
    line += count;
  }
  return spread;
}

std::vector<std::size_t> HeadRunner::slices() const {
  const std::string& name = c.network.nodes[unit.node].name;
  return {c.parameters.slice_index(name + ".weight"), c.parameters.slice_index(name + ".bias")};
}

backend::Metrics HeadRunner::take_metrics() {
  backend::Metrics sum;
  for (backend::Metrics& lane : metrics_) sum += std::exchange(lane, {});
  return sum;
}

void HeadRunner::copy_logits(std::span<float> logits) const {
  check(logits.size() == now().logits.size(), "the buffer for the logits has the wrong size");
  std::copy(now().logits.begin(), now().logits.end(), logits.begin());
}

}  // namespace lockstep::cpu
