#include "lockstep/backend/recompute.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"

namespace lockstep::backend {

Recompute parse_recompute(const std::string& text, const std::string& key) {
  Recompute result;
  if (text == "none") return result;
  if (text == "auto") {
    result.mode = Recompute::Mode::automatic;
    return result;
  }
  require(!text.empty() && text.find_first_not_of("0123456789") == std::string::npos,
          key + ": '" + text + "' is not auto, none or a number of segments");
  result.mode = Recompute::Mode::segments;
  result.segments = parse_count(text, key);
  require(result.segments > 0, key + ": a network has at least 1 segment; 'none' keeps all values");
  return result;
}

std::string to_string(const Recompute& recompute) {
  if (recompute.mode == Recompute::Mode::none) return "none";
  return recompute.mode == Recompute::Mode::automatic ? "auto" : std::to_string(recompute.segments);
}

/// The best way to a place in the chain, among those that are not worse in both figures.
struct Chain::Label {
  std::size_t stored;
  double operations;
  Span span;         // the last on the way
  std::size_t from;  // the label before it, among those of its place
};

Chain::Chain(std::size_t segments, const std::function<SpanCost(const Span&)>& cost)
    : segments_(segments), costs_(2 * segments * (segments + 1)) {
  check(segments > 0, "a chain has at least one segment");
  for (std::size_t first = 0; first < segments; ++first)
    for (std::size_t last = first + 1; last <= segments; ++last)
      for (const bool again : {false, true})
        if (!again || last < segments)
          costs_[2 * (first * (segments + 1) + last) + again] = cost({first, last, again});
}

const SpanCost& Chain::cost(const Span& span) const {
  check(span.first < span.last && span.last <= segments_, "a span lies within its chain");
  return costs_[2 * (span.first * (segments_ + 1) + span.last) + span.again];
}

/// Goes along the chain. What a way has stored and made again is all that the rest depends on, so a
/// way that has more of both than another one is never better. spans > 0: only that many, all but
/// the last made again.
std::optional<std::vector<Span>> Chain::solve(std::size_t limit, std::size_t spans) const {
  const std::size_t levels = std::max<std::size_t>(1, spans);
  const auto place = [&](std::size_t level, std::size_t at) {
    return level * (segments_ + 1) + at;
  };
  std::vector<std::vector<Label>> labels((levels + 1) * (segments_ + 1));
  labels[0].push_back({0, 0, {}, 0});
  const auto prune = [](std::vector<Label>& all) {
    std::sort(all.begin(), all.end(), [](const Label& a, const Label& b) {
      return a.stored != b.stored ? a.stored < b.stored : a.operations < b.operations;
    });
    std::vector<Label> best;
    for (const Label& label : all)
      if (best.empty() || label.operations < best.back().operations) best.push_back(label);
    all = std::move(best);
  };
  for (std::size_t level = 0; level < levels; ++level) {
    for (std::size_t first = 0; first < segments_; ++first) {
      std::vector<Label>& here = labels[place(level, first)];
      prune(here);
      for (std::size_t last = first + 1; last <= segments_; ++last) {
        for (const bool again : {false, true}) {
          const bool is_end = last == segments_;
          if (again && is_end) continue;
          if (spans > 0 && (again == is_end || is_end != (level + 1 == spans))) continue;
          const Span span{first, last, again};
          const SpanCost& c = cost(span);
          for (std::size_t i = 0; i < here.size(); ++i)
            if (here[i].stored + c.peak <= limit)
              labels[place(spans > 0 ? level + 1 : 0, last)].push_back(
                  {here[i].stored + c.stored, here[i].operations + c.operations, span, i});
        }
      }
    }
  }
  std::size_t level = spans, at = segments_;
  const std::vector<Label>& ends = labels[place(level, at)];
  if (ends.empty()) return std::nullopt;
  const Label* label = &*std::min_element(
      ends.begin(), ends.end(),
      [](const Label& a, const Label& b) { return a.operations < b.operations; });
  std::vector<Span> way;
  while (at > 0) {
    way.push_back(label->span);
    at = label->span.first;
    if (spans > 0) --level;
    label = &labels[place(level, at)][label->from];
  }
  std::reverse(way.begin(), way.end());
  return way;
}

std::optional<std::vector<Span>> Chain::fewest_operations(std::size_t limit) const {
  return solve(limit, 0);
}

/// Halves the range of limits in which the smallest possible one lies.
std::vector<Span> Chain::smallest(std::size_t spans) const {
  std::size_t low = 0, high = 1;
  std::optional<std::vector<Span>> best;
  while (!(best = solve(high, spans))) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    if (auto spans_there = solve(middle, spans)) {
      best = std::move(spans_there);
      high = middle;
    } else {
      low = middle;
    }
  }
  return *best;
}

std::vector<Span> Chain::least_memory() const { return smallest(0); }

std::vector<Span> Chain::least_memory(std::size_t spans) const {
  check(spans > 0 && spans <= segments_, "a chain has at least as many segments as spans");
  return smallest(spans);
}

std::size_t Chain::peak(const std::vector<Span>& spans) const {
  std::size_t stored = 0, most = 0;
  for (const Span& span : spans) {
    most = std::max(most, stored + cost(span).peak);
    stored += cost(span).stored;
  }
  return most;
}

double Chain::operations(const std::vector<Span>& spans) const {
  double sum = 0;
  for (const Span& span : spans) sum += cost(span).operations;
  return sum;
}

}  // namespace lockstep::backend
