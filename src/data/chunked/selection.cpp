#include "data/chunked/whole_data.hpp"

#include <algorithm>
#include <utility>

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
    for (const hsize_t cut : {box->begin[d], box->end[d]})
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

namespace {

constexpr hsize_t most_boxes = 1 << 20;  // of one selection

/// A regular hyperslab.
struct Slab {
  Extents start, stride, count, block;

  explicit Slab(std::size_t rank) : start(rank), stride(rank), count(rank), block(rank) {}

  bool is_endless(std::size_t d) const {
    return count[d] == H5S_UNLIMITED || block[d] == H5S_UNLIMITED;
  }
  /// Ends what is endless, and joins other blocks that touch.
  void settle(const Extents& shape) {
    for (std::size_t d = 0; d < start.size(); ++d) {
      const hsize_t room = shape[d] - std::min(shape[d], start[d]);
      const bool endless = is_endless(d);  // its blocks may be of a series
      if (block[d] == H5S_UNLIMITED) block[d] = room;
      if (count[d] == H5S_UNLIMITED) count[d] = (room + stride[d] - 1) / stride[d];
      if (!endless && count[d] > 1 && block[d] == stride[d]) block[d] *= std::exchange(count[d], 1);
    }
  }
  hsize_t boxes() const { return values_of(count); }
  Box box(hsize_t number) const {
    Box box{start, start};
    for (std::size_t d = start.size(); d-- > 0; number /= count[d]) {
      box.begin[d] += number % count[d] * stride[d];
      box.end[d] = box.begin[d] + block[d];
    }
    return box;
  }
};

}  // namespace

Extents extents_of(hid_t space) {
  Extents extents(static_cast<std::size_t>(std::max(0, H5Sget_simple_extent_ndims(space))));
  H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  return extents;
}

hsize_t values_of(const Extents& extents) {
  hsize_t values = 1;
  for (const hsize_t extent : extents) values *= extent;
  return values;
}

void clip(std::vector<Box>& boxes, const Extents& shape) {
  for (Box& box : boxes)
    for (std::size_t d = 0; d < shape.size(); ++d) box.end[d] = std::min(box.end[d], shape[d]);
  std::erase_if(boxes, [&](const Box& box) {
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (box.begin[d] >= box.end[d]) return true;
    return false;
  });
}

Selected selected(hid_t space, const Extents& shape) {
  Selected found;
  const H5S_sel_type kind = H5Sget_select_type(space);
  if (kind == H5S_SEL_ALL) {
    found.all = true;
    found.boxes.push_back({Extents(shape.size(), 0), shape});
  }
  if (kind != H5S_SEL_HYPERSLABS) return found;
  const std::size_t rank = extents_of(space).size();
  Slab slab(rank);
  if (rank != shape.size()) return found;
  if (H5Sis_regular_hyperslab(space) > 0) {
    H5Sget_regular_hyperslab(space, slab.start.data(), slab.stride.data(), slab.count.data(),
                             slab.block.data());
    for (std::size_t d = 0; d < rank; ++d) found.endless = found.endless || slab.is_endless(d);
    slab.settle(shape);
    found.too_many = slab.boxes() > most_boxes;
    for (hsize_t i = 0; !found.too_many && i < slab.boxes(); ++i)
      found.boxes.push_back(slab.box(i));
    return found;
  }
  const hssize_t blocks = H5Sget_select_hyper_nblocks(space);
  found.too_many = blocks > static_cast<hssize_t>(most_boxes);
  if (blocks <= 0 || found.too_many) return found;
  Extents corners(static_cast<std::size_t>(blocks) * 2 * rank);
  H5Sget_select_hyper_blocklist(space, 0, static_cast<hsize_t>(blocks), corners.data());
  for (auto at = corners.begin(); at != corners.end();
       at += static_cast<std::ptrdiff_t>(2 * rank)) {
    const auto middle = at + static_cast<std::ptrdiff_t>(rank);
    found.boxes.push_back(
        {Extents(at, middle), Extents(middle, middle + static_cast<std::ptrdiff_t>(rank))});
    for (hsize_t& end : found.boxes.back().end) ++end;  // HDF5 gives the last places
  }
  return found;
}

std::string of_block(const std::string& name, hsize_t block) {
  std::string text;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char next = name[i] == '%' && i + 1 < name.size() ? name[i + 1] : '\0';
    if (next == 'b')
      text += std::to_string(block);
    else
      text += name[i];
    if (next == 'b' || next == '%') ++i;
  }
  return text;
}

bool is_series(const std::string& name) { return of_block(name, 0) != of_block(name, 1); }

}  // namespace lockstep::data
