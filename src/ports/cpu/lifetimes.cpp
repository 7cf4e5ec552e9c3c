#include "ports/cpu/lifetimes.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep::cpu {

namespace {
std::size_t rounded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }  // as the planner does
}  // namespace

Lifetimes::Lifetimes(const std::vector<Unit>& units, std::size_t regions,
                     std::vector<std::size_t> cuts, bool training)
    : units_(units), regions_(regions), cuts_(std::move(cuts)), training_(training) {
  cut_of_region_.resize(regions_);
  for (const std::size_t cut : cuts_) cut_of_region_[units_[cut].level] = cut;
  choose({{0, segments(), false}});
}

std::size_t Lifetimes::region_at(std::size_t segment) const {
  if (segment == 0) return 0;
  return segment > cuts_.size() ? regions_ : units_[cuts_[segment - 1]].level;
}

void Lifetimes::choose(const std::vector<backend::Span>& spans) {
  stretches_.clear();
  kept_.assign(units_.size(), false);
  for (std::size_t u = 0; u < units_.size(); ++u) kept_[u] = units_[u].kept;
  for (const backend::Span& span : spans) {
    stretches_.push_back({region_at(span.first), region_at(span.last), span.again});
    if (span.first > 0) kept_[cuts_[span.first - 1]] = true;
  }
  check(!stretches_.empty() && stretches_.back().last == regions_ && !stretches_.back().again,
        "spans must cover the network and end with one that is kept");
  again_.assign(regions_, 0);
  backward_.assign(regions_, 0);
  after_forward_.clear();
  if (!training_) return;
  const auto add = [&](std::size_t region, bool again) {
    (again ? again_ : backward_)[region] = regions_ + after_forward_.size();
    after_forward_.push_back({region, again});
  };
  for (std::size_t s = stretches_.size(); s-- > 0;) {
    const Stretch& stretch = stretches_[s];
    if (stretch.again)
      for (std::size_t r = stretch.first; r < stretch.last; ++r) add(r, true);
    // A stretch's first region also holds the backward of the cut before it, which needs the
    // values of the stretch before.
    const std::size_t begin = s == 0 ? 0 : stretch.first + 1,
                      end = std::min(stretch.last + 1, regions_);
    for (std::size_t r = end; r-- > begin;) add(r, false);
  }
}

bool Lifetimes::belongs_to(const Stretch& stretch, std::size_t unit) const {
  if (!units_[unit].in_region) unit = units_[unit].readers[0];  // which runs it
  const std::size_t level = units_[unit].level;
  if (level == stretch.first) return cut_in(level) != unit;
  return (level > stretch.first && level < stretch.last) ||
         (level == stretch.last && cut_in(level) == unit);
}

std::optional<std::size_t> Lifetimes::cut_in(std::size_t region) const {
  for (const Stretch& stretch : stretches_)
    if (stretch.first == region) return cut_of_region_[region];
  return std::nullopt;
}

const Stretch& Lifetimes::stretch_of(std::size_t unit) const {
  for (const Stretch& stretch : stretches_)
    if (belongs_to(stretch, unit)) return stretch;
  throw Error(units_[unit].name + " is in no stretch of the network");
}

/// The last region that reads the value in forward. Readers that are not kept are made again by
/// their own readers.
std::size_t Lifetimes::last_read(std::size_t unit) const {
  std::size_t last = units_[unit].level;
  for (const std::size_t reader : units_[unit].readers) {
    last = std::max(last, units_[reader].level);
    if (!kept_[reader] && units_[reader].kind == UnitKind::point)
      last = std::max(last, last_read(reader));
    if (units_[reader].in_place && units_[reader].skip == unit)
      last = std::max(last, last_read(reader));
  }
  return last;
}

bool Lifetimes::made_again(std::size_t unit) const {
  const Stretch& stretch = stretch_of(unit);
  return stretch.again && units_[unit].level < stretch.last;  // what ends it is kept: the cut
}

Lives Lifetimes::value_lives(std::size_t unit) const {
  const std::size_t made = units_[unit].level;
  const Life forward{made, last_read(unit)};
  if (!training_) return {forward, std::nullopt};
  if (!made_again(unit)) return {{made, backward_[made]}, std::nullopt};
  return {forward, Life{again_[made], backward_[made]}};
}

std::optional<Lives> Lifetimes::lives(const BufferRequest& request) const {
  switch (request.kind) {
    case BufferRequest::Kind::value:
      if (!kept_[request.unit] && units_[request.unit].kind == UnitKind::point) return std::nullopt;
      return value_lives(request.unit);
    case BufferRequest::Kind::forward: {
      Lives lives{{request.first, request.last}, std::nullopt};
      if (const std::size_t step = again_[request.first]) lives.again = Life{step, step};
      return lives;
    }
    case BufferRequest::Kind::backward:
      return Lives{{backward_[request.first], backward_[request.last]}, std::nullopt};
  }
  throw Error("a buffer of no kind");
}

std::vector<std::size_t> Lifetimes::alive(const std::vector<BufferRequest>& requests) const {
  std::vector<std::size_t> change(regions_ + after_forward_.size() + 1,
                                  0);  // sums wrap, and come back
  const auto add = [&](const Life& life, std::size_t bytes) {
    change[life.first] += bytes;
    change[life.last + 1] -= bytes;
  };
  for (const BufferRequest& request : requests) {
    const auto lives = this->lives(request);
    if (!lives) continue;
    add(lives->life, rounded(request.bytes));
    if (lives->again) add(*lives->again, rounded(request.bytes));
  }
  for (std::size_t step = 1; step < change.size(); ++step) change[step] += change[step - 1];
  change.pop_back();
  return change;
}

std::size_t Lifetimes::peak(const std::vector<BufferRequest>& requests) const {
  const std::vector<std::size_t> bytes = alive(requests);
  return *std::max_element(bytes.begin(), bytes.end());
}

backend::SpanCost Lifetimes::cost(const backend::Span& span,
                                  const std::vector<BufferRequest>& requests,
                                  const std::vector<double>& operations) {
  std::vector<backend::Span> spans{span};
  if (span.first > 0) spans.insert(spans.begin(), {0, span.first, false});
  if (span.last < segments()) spans.push_back({span.last, segments(), false});
  choose(spans);
  const Stretch& stretch = stretches_[span.first > 0 ? 1 : 0];
  backend::SpanCost cost;
  std::size_t before = 0;  // what the regions before store, all of which are kept here
  for (const BufferRequest& request : requests) {
    if (request.kind != BufferRequest::Kind::value) continue;
    const auto lives = this->lives(request);
    if (!lives || lives->life.last < regions_) continue;
    if (belongs_to(stretch, request.unit)) cost.stored += rounded(request.bytes);
    if (span.first > 0 && belongs_to(stretches_[0], request.unit)) before += rounded(request.bytes);
  }
  const std::vector<std::size_t> bytes = alive(requests);
  const auto look = [&](std::size_t step) {
    cost.peak = std::max(cost.peak, bytes[step] - before);
  };
  const std::size_t end = std::min(stretch.last, regions_ - 1);
  for (std::size_t r = stretch.first; r <= end; ++r) {
    look(r);  // region `last` still reads what this stretch makes
    if (stretch.again && r < stretch.last) look(again_[r]);
    if (r > stretch.first || span.first == 0) look(backward_[r]);
  }
  if (stretch.again)
    for (std::size_t u = 0; u < units_.size(); ++u)
      if (belongs_to(stretch, u) && made_again(u)) cost.operations += operations[u];
  return cost;
}

}  // namespace lockstep::cpu
