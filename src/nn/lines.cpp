#include "lockstep/nn/lines.hpp"

#include <algorithm>

namespace lockstep::nn {

LineRange even_lines(std::size_t height, std::size_t part, std::size_t parts) {
  const std::size_t first = height * part / parts;
  return {first, height * (part + 1) / parts - first};
}

LineRange covering(const LineRange& one, const LineRange& other) {
  if (one.count == 0) return other;
  if (other.count == 0) return one;
  const std::size_t first = std::min(one.first, other.first);
  return {first, std::max(one.end(), other.end()) - first};
}

std::size_t most_tiles(const Network& network) {
  std::size_t fewest = network.input.height;
  for (const Node& node : network.nodes)
    if (node.op == Op::conv || node.op == Op::max_pool || node.op == Op::avg_pool)
      fewest = std::min(fewest, node.shape.height);
  return fewest;
}

LineRange common(const LineRange& one, const LineRange& other) {
  const std::size_t first = std::max(one.first, other.first),
                    end = std::min(one.end(), other.end());
  return first < end ? LineRange{first, end - first} : LineRange{first, 0};
}

Reach read_by(const WindowLines& window, const LineRange& out) {
  // In lines of the padded image.
  const std::size_t begin = out.first * window.stride,
                    end = (out.end() - 1) * window.stride + window.kernel;
  const std::size_t top = window.padding, bottom = top + window.height;
  const std::size_t in_begin = std::max(begin, top), in_end = std::min(end, bottom);
  return {{in_begin - top, in_end - in_begin}, in_begin - begin, end - in_end};
}

ReaderLines readers_of(const WindowLines& window, const LineRange& in) {
  // In lines of the padded image, too.
  const std::size_t begin = in.first + window.padding, end = in.end() + window.padding;
  const std::size_t first = begin < window.kernel ? 0 : (begin - window.kernel) / window.stride + 1;
  const std::size_t last =
      in.count == 0 ? 0 : std::min(window.out_height, (end - 1) / window.stride + 1);
  if (first >= last) return {{}, in.count, 0};
  const std::size_t from = first * window.stride, to = (last - 1) * window.stride + window.kernel;
  return {{{first, last - first}, begin - std::min(begin, from), to - std::min(to, end)},
          from - std::min(from, begin),
          end - std::min(end, to)};
}

}  // namespace lockstep::nn
