#include "data/chunked/coverage.hpp"

#include <algorithm>

namespace lockstep::data {
namespace {

using Active = std::vector<const Box*>;

/// Calls `use(from, to, boxes)` for each span of dimension `d` over which the same boxes lie.
template <class Use>
void for_each_span(Active boxes, const Extents& shape, std::size_t d, Use use) {
  std::sort(boxes.begin(), boxes.end(),
            [d](const Box* a, const Box* b) { return a->begin[d] < b->begin[d]; });
  Extents cuts = {0, shape[d]};
  for (const Box* box : boxes)
    for (const unsigned long long cut : {box->begin[d], box->end[d]})
      if (cut < shape[d]) cuts.push_back(cut);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  Active here;
  auto next = boxes.begin();
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    std::erase_if(here, [&](const Box* box) { return box->end[d] <= cuts[i]; });
    for (; next != boxes.end() && (*next)->begin[d] <= cuts[i]; ++next)
      if ((*next)->end[d] > cuts[i]) here.push_back(*next);
    use(cuts[i], cuts[i + 1], here);
  }
}

/// Whether the boxes cover all of the dimensions from `d` on.
bool cover(const Active& boxes, const Extents& shape, std::size_t d) {
  if (boxes.empty()) return false;
  if (d == shape.size()) return true;
  const auto is_whole = [&](const Box* box) {
    for (std::size_t i = d; i < shape.size(); ++i)
      if (box->begin[i] > 0 || box->end[i] < shape[i]) return false;
    return true;
  };
  if (std::any_of(boxes.begin(), boxes.end(), is_whole)) return true;
  bool all = true;
  for_each_span(boxes, shape, d,
                [&](auto, auto, const Active& here) { all = all && cover(here, shape, d + 1); });
  return all;
}

}  // namespace

Uncovered uncovered_rows(const std::vector<Box>& boxes, const Extents& shape) {
  Active all;
  for (const Box& box : boxes) all.push_back(&box);
  Uncovered result;
  for_each_span(all, shape, 0, [&](auto from, auto to, const Active& here) {
    if (cover(here, shape, 1)) return;
    if (result.rows == 0) result.first = from;
    result.rows += to - from;
  });
  return result;
}

std::uint64_t volume(const std::vector<Box>& boxes) {
  std::uint64_t sum = 0;
  for (const Box& box : boxes) {
    std::uint64_t one = 1;
    for (std::size_t d = 0; d < box.begin.size(); ++d) one *= box.end[d] - box.begin[d];
    sum += one;
  }
  return sum;
}

}  // namespace lockstep::data
