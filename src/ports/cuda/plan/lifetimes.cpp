#include "ports/cuda/plan/lifetimes.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.hpp"

namespace lockstep::cuda {

Lifetimes::Lifetimes(const std::vector<Unit>& units, const std::vector<BufferRequest>& requests,
                     std::vector<std::size_t> cuts, bool training)
    : units_(units), requests_(requests), cuts_(std::move(cuts)), training_(training) {
  choose({{0, segments(), false}});
}

std::size_t Lifetimes::begin_of(std::size_t segment) const {
  if (segment == 0) return 0;
  return segment > cuts_.size() ? units_.size() : cuts_[segment - 1] + 1;
}

/// By unit: whether it must run again, for [begin, end) without the last one.
std::vector<bool> Lifetimes::needed_again(std::size_t begin, std::size_t end) const {
  std::vector<bool> makes(units_.size()), needed(units_.size());
  for (const BufferRequest& request : requests_) {
    const bool inside = request.unit >= begin && request.unit + 1 < end;
    if (!request.repeated || !inside) continue;
    makes[request.unit] = true;
    if (request.last_backward) needed[request.unit] = true;
  }
  for (std::size_t u = end - 1; u-- > begin;)
    for (const std::size_t reader : units_[u].readers)
      if (makes[u] && needed[reader]) needed[u] = true;
  return needed;
}

void Lifetimes::choose(const std::vector<backend::Span>& spans) {
  check(!spans.empty() && spans.back().last == segments() && !spans.back().again,
        "spans must cover the network and end with one that is kept");
  again_.assign(units_.size(), 0);
  backward_.assign(units_.size(), 0);
  after_forward_.clear();
  ends_span_.assign(units_.size(), false);
  if (!training_) return;
  for (const backend::Span& span : spans)
    if (span.first > 0) ends_span_[cuts_[span.first - 1]] = true;
  const auto add = [&](std::size_t unit, bool again) {
    (again ? again_ : backward_)[unit] = units_.size() + after_forward_.size();
    after_forward_.push_back({unit, again});
  };
  for (std::size_t s = spans.size(); s-- > 0;) {
    const std::size_t begin = begin_of(spans[s].first), end = begin_of(spans[s].last);
    if (spans[s].again) {
      const std::vector<bool> needed = needed_again(begin, end);
      for (std::size_t u = begin; u < end; ++u)
        if (needed[u]) add(u, true);
    }
    for (std::size_t u = end; u-- > begin;) add(u, false);
  }
}

backend::Lives Lifetimes::lives(const BufferRequest& request) const {
  const std::size_t unit = request.unit;
  if (request.always) return {{0, units_.size() + after_forward_.size()}, {}};
  if (request.of_backward) return {{backward_[unit], backward_[*request.last_backward]}, {}};
  const backend::Life forward{unit, request.last_forward};
  if (!training_) return {forward, {}};
  // The next span may be made again from it.
  const auto last = request.repeated && ends_span_[unit] ? unit : request.last_backward;
  if (!request.repeated || !made_again(unit)) {
    if (last) return {{unit, backward_[*last]}, {}};
    return {forward, {}};
  }
  if (last) return {forward, backend::Life{again_[unit], backward_[*last]}};
  std::size_t reader = request.last_forward;
  while (reader > unit && !made_again(reader)) --reader;
  return {forward, backend::Life{again_[unit], again_[reader]}};
}

bool Lifetimes::remains(const backend::Life& life) const {
  return life.first < units_.size() && life.last >= units_.size();
}

bool Lifetimes::in_slot(const BufferRequest& request) const {
  return request.always || remains(lives(request).life);
}

std::vector<std::size_t> Lifetimes::alive() const {
  // One more step, after the last: what is always kept is in use then, too.
  std::vector<std::size_t> change(units_.size() + after_forward_.size() + 2,
                                  0);  // sums wrap, and come back
  const auto add = [&](const backend::Life& life, std::size_t bytes) {
    change[life.first] += bytes;
    change[life.last + 1] -= bytes;
  };
  for (const BufferRequest& request : requests_) {
    const backend::Lives lives = this->lives(request);
    add(lives.life, aligned(request.bytes));
    if (lives.again) add(*lives.again, aligned(request.bytes));
  }
  for (std::size_t step = 1; step < change.size(); ++step) change[step] += change[step - 1];
  change.pop_back();
  return change;
}

std::size_t Lifetimes::peak() const {
  const std::vector<std::size_t> bytes = alive();
  return *std::max_element(bytes.begin(), bytes.end());
}

backend::SpanCost Lifetimes::cost(const backend::Span& span,
                                  const std::vector<double>& operations) {
  std::vector<backend::Span> spans{span};
  if (span.first > 0) spans.insert(spans.begin(), {0, span.first, false});
  if (span.last < segments()) spans.push_back({span.last, segments(), false});
  choose(spans);
  const std::size_t begin = begin_of(span.first), end = begin_of(span.last);
  backend::SpanCost cost;
  std::size_t before = 0;  // what the units before store, all of which are kept here
  for (const BufferRequest& request : requests_) {
    if (request.of_backward || !remains(lives(request).life)) continue;
    if (request.unit < begin) before += aligned(request.bytes);
    if (request.unit >= begin && request.unit < end) cost.stored += aligned(request.bytes);
  }
  const std::vector<std::size_t> bytes = alive();
  const auto look = [&](std::size_t step) {
    cost.peak = std::max(cost.peak, bytes[step] - before);
  };
  for (std::size_t u = begin; u < end; ++u) {
    look(u);
    if (training_) look(backward_[u]);
    if (!made_again(u)) continue;
    look(again_[u]);
    cost.operations += operations[u];
  }
  return cost;
}

}  // namespace lockstep::cuda
