#include "ports/cpu/plan/tiling.hpp"

#include <algorithm>

#include "ports/cpu/runner.hpp"

namespace lockstep::cpu {
namespace {

bool has_window(const Unit& unit) {
  return unit.kind == UnitKind::conv || unit.kind == UnitKind::pool;
}

/// Collects the lines of one tile.
class TileLines {
 public:
  TileLines(const nn::Network& network, const std::vector<Unit>& units, const nn::TilePlace& tile)
      : network_(network), units_(units), tile_(tile), lines_(units.size()) {}

  std::vector<UnitLines> run() {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      UnitLines& lines = lines_[u];
      lines.value = lines.gradient = lines.output_gradient = own(units_[u]);
      if (units_[u].input) lines.input_gradient = own(units_[*units_[u].input]);
    }
    for (std::size_t u = 0; u < units_.size() && !tile_.is_whole(); ++u) {
      forward_reads(units_[u]);
      backward_reads(u);
    }
    return std::move(lines_);
  }

 private:
  std::size_t height(const Unit& unit) const { return network_.nodes[unit.node].shape.height; }
  nn::LineRange own(const Unit& unit) const { return tile_.of(height(unit)); }

  /// The unit's value is read; what is not kept is made of what it reads.
  void read(std::size_t u, const nn::LineRange& lines) {
    const Unit& unit = units_[u];
    lines_[u].value = nn::covering(lines_[u].value, lines);
    if (unit.kind != UnitKind::point || (unit.in_region && unit.kept)) return;
    read(*unit.input, lines);
    if (unit.skip) read(*unit.skip, unit.pad ? wide_lines_of(unit, lines) : lines);
  }

  void forward_reads(const Unit& unit) {
    if (!unit.input) return;
    nn::LineRange out = own(unit);
    if (has_window(unit)) {
      const nn::WindowLines window = window_of(network_, unit);
      if (unit.looks_again)
        out = nn::covering(out, nn::readers_of(window, own(units_[*unit.input])).lines);
      out = nn::read_by(window, out).lines;
    }
    if (unit.kind != UnitKind::head) read(*unit.input, out);
    if (unit.skip) read(*unit.skip, unit.pad ? wide_lines_of(unit, own(unit)) : own(unit));
  }

  void backward_reads(std::size_t u) {
    const Unit& unit = units_[u];
    if (unit.pad) {
      const auto wide = own(units_[*unit.skip]);
      widen(lines_[u].gradient, deep_lines_of(unit, wide, height(unit)));
    }
    if (!has_window(unit) || !unit.input) return;
    const nn::LineRange outs =
        nn::readers_of(window_of(network_, unit), own(units_[*unit.input])).lines;
    if (unit.kind == UnitKind::conv && unit.differentiates) widen(lines_[u].output_gradient, outs);
    if (unit.kind != UnitKind::pool) return;
    for (const std::size_t reader : unit.readers)
      widen(units_[reader].kind == UnitKind::conv ? lines_[reader].input_gradient
                                                  : lines_[reader].gradient,
            outs);
  }

  static void widen(nn::LineRange& lines, const nn::LineRange& more) {
    lines = nn::covering(lines, more);
  }

  const nn::Network& network_;
  const std::vector<Unit>& units_;
  const nn::TilePlace tile_;
  std::vector<UnitLines> lines_;
};

}  // namespace

std::vector<UnitLines> lines_of_tile(const nn::Network& network, const std::vector<Unit>& units,
                                     const nn::TilePlace& tile) {
  return TileLines(network, units, tile).run();
}

nn::WindowLines window_of(const nn::Network& network, const Unit& unit) {
  const nn::Node& node = network.nodes[unit.node];
  return {network.nodes[node.inputs[0]].shape.height, node.shape.height, node.kernel, node.stride,
          node.padding};
}

nn::LineRange wide_lines_of(const Unit& unit, const nn::LineRange& deep) {
  return {deep.first * unit.stride, (deep.count - 1) * unit.stride + 1};
}

nn::LineRange deep_lines_of(const Unit& unit, const nn::LineRange& wide, std::size_t deep_height) {
  const auto rounded_up = [&](std::size_t line) { return (line + unit.stride - 1) / unit.stride; };
  const std::size_t first = rounded_up(wide.first),
                    end = std::min(rounded_up(wide.end()), deep_height);
  return {first, end - std::min(first, end)};
}

bool reads_other_tiles(const nn::Network& network, const std::vector<Unit>& units,
                       const std::vector<std::size_t>& region, const nn::TilePlace& tile,
                       const Chunk& chunk) {
  const auto beyond = [&](const nn::LineRange& lines, std::size_t height) {
    return lines.count > 0 && nn::covering(lines, tile.of(height)) != tile.of(height);
  };
  const auto height = [&](std::size_t u) { return network.nodes[units[u].node].shape.height; };
  return std::any_of(region.begin(), region.end(), [&](std::size_t u) {
    const Unit& unit = units[u];
    const nn::LineRange own = chunk.in_image(height(u));
    for (const std::size_t reader : unit.readers)
      if (units[reader].pad && units[reader].skip == u &&
          beyond(deep_lines_of(units[reader], own, height(reader)), height(reader)))
        return true;
    if (unit.pad && beyond(wide_lines_of(unit, own), height(*unit.skip))) return true;
    if (!has_window(unit) || !unit.input) return false;
    const nn::WindowLines window = window_of(network, unit);
    const nn::LineRange outs = nn::readers_of(window, chunk.in_image(window.height)).lines;
    const nn::LineRange read = unit.looks_again ? nn::covering(own, outs) : own;
    return beyond(outs, window.out_height) ||
           beyond(nn::read_by(window, read).lines, window.height);
  });
}

}  // namespace lockstep::cpu
