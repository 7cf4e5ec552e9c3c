// Why a second forward gives the same bits. It has the same chunks (on a GPU: the same engines),
// and a batch norm keeps its mean and deviation from the first one. Only the first one makes sums
// over the batch, so that the running statistics count each micro-batch once.
#include "lockstep/backend/lifetimes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.hpp"

namespace lockstep::backend {

void Lifetimes::run(std::size_t part, bool again) {
  (again ? again_ : backward_)[part] = spec_.parts + after_forward_.size();
  after_forward_.push_back({part, again});
}

std::size_t Lifetimes::begin_of(std::size_t segment) const {
  if (segment == 0) return 0;
  return segment > spec_.begins.size() ? spec_.parts : spec_.begins[segment - 1];
}

/// One after the last part that has to do with what belongs to the span.
std::size_t Lifetimes::end_of(const Span& span) const {
  return std::min(begin_of(span.last) + (spec_.cut_is_next ? 1 : 0), spec_.parts);
}

std::size_t Lifetimes::begin_of_backward(const Span& span) const {
  return span.first == 0 ? 0 : begin_of(span.first) + (spec_.cut_is_next ? 1 : 0);
}

bool Lifetimes::ends_span(std::size_t unit) const {
  return std::any_of(spans_.begin(), spans_.end(), [&](const Span& span) {
    return span.first > 0 && spec_.cuts[span.first - 1] == unit;
  });
}

std::size_t Lifetimes::span_with(std::size_t unit, std::size_t part) const {
  const bool is_late = spec_.cut_is_next && ends_span(unit);
  for (std::size_t s = 0; s < spans_.size(); ++s) {
    const std::size_t begin = begin_of(spans_[s].first), end = begin_of(spans_[s].last);
    if (is_late ? part > begin && part <= end : part >= begin && part < end) return s;
  }
  throw Error(fmt::format("unit {} is in no span of the network", unit));
}

void Lifetimes::choose(const std::vector<Span>& spans) {
  check(!spans.empty() && spans.back().last == segments() && !spans.back().again,
        "spans must cover the network and end with one that is kept");
  spans_ = spans;
  after_forward_.clear();
  again_.assign(spec_.parts, 0);
  backward_.assign(spec_.parts, 0);
  if (!spec_.training) return;
  for (std::size_t s = spans.size(); s-- > 0;) {
    const std::size_t begin = begin_of(spans[s].first), end = begin_of(spans[s].last);
    if (spans[s].again) {
      const std::vector<bool> needed = needed_again(begin, end);
      for (std::size_t part = begin; part < end; ++part)
        if (needed[part]) run(part, true);
    }
    for (std::size_t part = end_of(spans[s]); part-- > begin_of_backward(spans[s]);)
      run(part, false);
  }
}

std::size_t Lifetimes::aligned(std::size_t bytes) const {
  return (bytes + spec_.alignment - 1) / spec_.alignment * spec_.alignment;
}

std::vector<PlannedBuffer> Lifetimes::buffers() const {
  std::vector<PlannedBuffer> all = requested();
  for (PlannedBuffer& buffer : all) {
    if (!buffer.lives) continue;
    const Life& life = buffer.lives->life;
    buffer.in_slot = life.first < spec_.parts && life.last >= spec_.parts;
    buffer.is_late =
        life.first >= spec_.parts && life.first < backward_end() && life.last >= backward_end();
  }
  return all;
}

/// By step of the tape, and once more after the last: what is always kept is in use then, too.
std::vector<std::size_t> Lifetimes::alive(const std::vector<PlannedBuffer>& buffers) const {
  // Sums wrap, and come back.
  const std::size_t steps = backward_end() + (spec_.weights_later ? spec_.parts : 0);
  std::vector<std::size_t> change(steps + 2, 0);
  const auto add = [&](const Life& life, std::size_t bytes) {
    change[life.first] += bytes;
    change[life.last + 1] -= bytes;
  };
  for (const PlannedBuffer& buffer : buffers) {
    if (!buffer.lives) continue;
    add(buffer.lives->life, aligned(buffer.bytes));
    if (buffer.lives->again) add(*buffer.lives->again, aligned(buffer.bytes));
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  change.pop_back();
  return change;
}

std::size_t Lifetimes::peak() const {
  const std::vector<std::size_t> bytes = alive(buffers());
  return *std::max_element(bytes.begin(), bytes.end());
}

double Lifetimes::operations_again() const {
  double again = 0;
  for (std::size_t u = 0; u < spec_.operations.size(); ++u)
    if (made_again(u)) again += spec_.operations[u];
  return again;
}

double Lifetimes::share_made_again() const {
  return operations_again() /
         std::accumulate(spec_.operations.begin(), spec_.operations.end(), 0.0);
}

SpanCost Lifetimes::cost(const Span& span) {
  std::vector<Span> spans{span};
  if (span.first > 0) spans.insert(spans.begin(), {0, span.first, false});
  if (span.last < segments()) spans.push_back({span.last, segments(), false});
  choose(spans);
  const std::size_t ours = span.first > 0 ? 1 : 0;
  const std::vector<PlannedBuffer> all = buffers();
  SpanCost cost{.operations = operations_again()};
  std::size_t before = 0;  // what the span before stores, all of which is kept here
  for (const PlannedBuffer& buffer : all) {
    if (!buffer.in_slot) continue;
    const std::size_t at = span_of(buffer.unit);
    if (at == ours) cost.stored += aligned(buffer.bytes);
    if (at < ours) before += aligned(buffer.bytes);
  }
  const std::vector<std::size_t> bytes = alive(all);
  const auto look = [&](std::size_t step) {
    cost.peak = std::max(cost.peak, bytes[step] - before);
  };
  for (std::size_t part = begin_of(span.first); part < end_of(span); ++part) {
    look(part);
    if (again_[part] > 0) look(again_[part]);
    if (part >= begin_of_backward(span)) look(backward_[part]);
  }
  return cost;
}

}  // namespace lockstep::backend
