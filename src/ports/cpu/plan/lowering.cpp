#include "ports/cpu/plan/lowering.hpp"

#include <algorithm>
#include <map>

#include "lockstep/base/error.hpp"

namespace lockstep::cpu {

namespace {

using nn::Node;
using nn::Op;

class Lowering {
 public:
  Lowering(const nn::Network& network, bool bands)
      : network_(network), bands_(bands), readers_(nn::readers(network)) {}

  std::vector<Unit> run() {
    for (std::size_t i = 0; i < network_.nodes.size(); ++i) lower_node(i);
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (units_[u].input) units_[*units_[u].input].readers.push_back(u);
      if (units_[u].skip) units_[*units_[u].skip].readers.push_back(u);
    }
    for (Unit& unit : units_) finish(unit);
    return std::move(units_);
  }

 private:
  [[noreturn]] void refuse(std::size_t node, const std::string& why) const {
    throw InputError("the CPU backend cannot place " + network_.nodes[node].name + ": " + why);
  }

  void lower_node(std::size_t i) {
    const Node& node = network_.nodes[i];
    Unit unit;
    unit.node = i;
    unit.name = node.name;
    switch (node.op) {
      case Op::conv:
        if (readers_[i].size() != 1 || network_.nodes[readers_[i][0]].op != Op::batch_norm)
          refuse(i, "exactly one batch norm must read a convolution");
        if (node.shape.channels % 16 != 0) refuse(i, "its channels are not a multiple of 16");
        unit.kind = UnitKind::conv;
        unit.bn = readers_[i][0];
        if (network_.nodes[node.inputs[0]].op != Op::input) unit.input = value(node.inputs[0], i);
        unit.differentiates = wants_gradient(network_.nodes[node.inputs[0]]);
        put(unit);
        return;
      case Op::relu:
        lower_relu(i);
        return;
      case Op::max_pool:
      case Op::avg_pool:
        unit.kind = UnitKind::pool;
        unit.looks_again = node.op == Op::max_pool;
        unit.input = value(node.inputs[0], i);
        put(unit);
        return;
      case Op::linear: {
        require_one_reader(i, Op::loss);
        const std::size_t pool = node.inputs[0];
        if (network_.nodes[pool].op != Op::global_avg_pool)
          refuse(i, "a linear layer must follow global average pooling");
        unit.kind = UnitKind::head;
        unit.input = value(network_.nodes[pool].inputs[0], i);
        unit.differentiates = wants_gradient(network_.nodes[network_.nodes[pool].inputs[0]]);
        put(unit);
        return;
      }
      case Op::receive:
        unit.kind = UnitKind::receive;
        put(unit);
        return;
      case Op::send:
        unit.kind = UnitKind::send;
        unit.input = value(node.inputs[0], i);
        put(unit);
        return;
      case Op::input:
        return;
      case Op::batch_norm:
      case Op::add:
      case Op::subsample_pad:
      case Op::global_avg_pool:
      case Op::loss:
        judge_part(i);
        return;
    }
  }

  /// Checks a node that is a part of the neighbouring units.
  void judge_part(std::size_t i) const {
    const Op op = network_.nodes[i].op;
    const auto reads = [&](Op other) {
      return network_.nodes[network_.nodes[i].inputs[0]].op == other;
    };
    if (op == Op::batch_norm && !reads(Op::conv)) refuse(i, "it must follow a convolution");
    if (op == Op::batch_norm && readers_[i].size() != 1) refuse(i, "exactly one node must read it");
    if (op == Op::add) require_one_reader(i, Op::relu);
    if (op == Op::subsample_pad) require_one_reader(i, Op::add);
    if (op == Op::global_avg_pool) require_one_reader(i, Op::linear);
    if (op == Op::loss && !reads(Op::linear)) refuse(i, "it must follow a linear layer");
  }

  void require_one_reader(std::size_t i, Op op) const {
    if (readers_[i].size() != 1 || network_.nodes[readers_[i][0]].op != op)
      refuse(i, std::string("exactly one node must read it, of op ") + choice_name(op));
  }

  void lower_relu(std::size_t i) {
    Unit unit;
    unit.kind = UnitKind::point;
    unit.node = i;
    unit.name = network_.nodes[i].name;
    std::size_t source = network_.nodes[i].inputs[0];
    if (network_.nodes[source].op == Op::add) {
      const Node& add = network_.nodes[source];
      source = add.inputs[0];
      std::size_t skip = add.inputs[1];
      if (network_.nodes[skip].op == Op::batch_norm) {
        unit.skip = value(network_.nodes[skip].inputs[0], skip);
      } else {
        if (network_.nodes[skip].op == Op::subsample_pad) {
          unit.pad = true;
          unit.stride = network_.nodes[skip].stride;
          skip = network_.nodes[skip].inputs[0];
        }
        unit.skip = value(skip, i);
      }
    }
    if (network_.nodes[source].op != Op::batch_norm) refuse(i, "a ReLU must follow a batch norm");
    unit.input = value(network_.nodes[source].inputs[0], i);
    put(unit);
  }

  std::size_t value(std::size_t node, std::size_t reader) const {
    const auto found = unit_of_node_.find(node);
    if (found == unit_of_node_.end())
      refuse(reader, "its input is not a convolution, ReLU or pooling");
    return found->second;
  }

  void put(Unit unit) {
    unit_of_node_[unit.node] = units_.size();
    units_.push_back(std::move(unit));
  }

  // Units come in network order, so inputs have their levels when their readers are reached.
  void finish(Unit& unit) {
    const auto only_reader = [&](std::size_t u) { return units_[u].kind; };
    if (unit.kind == UnitKind::point) {
      unit.in_region = unit.skip.has_value() || unit.readers.size() != 1 ||
                       (only_reader(unit.readers[0]) != UnitKind::conv &&
                        only_reader(unit.readers[0]) != UnitKind::pool);
      unit.kept = unit.in_region && !cheap_to_repeat(unit);
    }
    for (const auto& source : {unit.input, unit.skip}) {
      if (!source) continue;
      const Unit& from = units_[*source];
      const bool new_region = from.kind == UnitKind::conv || unit.kind == UnitKind::head ||
                              (bands_ && from.in_region && reads_other_bands(unit, from));
      unit.level = std::max(unit.level, from.level + (new_region ? 1 : 0));
    }
  }

  /// In forward, or for what its input's backward needs of it.
  bool reads_other_bands(const Unit& unit, const Unit& from) const {
    if (unit.kind == UnitKind::point) return from.kind == UnitKind::pool;
    const Node& node = network_.nodes[unit.node];
    return from.kind == UnitKind::pool || node.kernel > 1 || node.stride > 1;
  }

  // Every second join with an identity skip is not kept. It can be computed again from one batch
  // norm's input, which backward reads anyway, and the join before it. That saves much memory and
  // adds no more traffic than it saves.
  bool cheap_to_repeat(const Unit& unit) const {
    if (!unit.skip || unit.pad) return false;
    const Unit& skip = units_[*unit.skip];
    return skip.kept && skip.kind != UnitKind::conv;
  }

  const nn::Network& network_;
  const bool bands_;
  std::vector<std::vector<std::size_t>> readers_;  // of nodes
  std::map<std::size_t, std::size_t> unit_of_node_;
  std::vector<Unit> units_;
};

}  // namespace

std::vector<Unit> lower(const nn::Network& network, bool bands) {
  return Lowering(network, bands).run();
}

namespace {

/// True when no other unit reads the skip's value after this one has begun; `apart`: other lanes
/// may be in an earlier unit of the region.
bool can_replace_skip(const std::vector<Unit>& units, std::size_t reader, bool apart) {
  const Unit& unit = units[reader];
  if (unit.kind != UnitKind::folded || !unit.skip || unit.pad || unit.input == unit.skip)
    return false;
  const Unit& skip = units[*unit.skip];
  return (skip.kind == UnitKind::folded || skip.kind == UnitKind::pool) &&
         std::all_of(skip.readers.begin(), skip.readers.end(), [&](std::size_t other) {
           return units[other].level < unit.level || other == reader ||
                  (!apart && units[other].level == unit.level && other < reader);
         });
}

/// True when a convolution had better take each chunk from the unit before at once, while it is in
/// cache: when an image has more values than the weights, which every chunk reads again.
bool runs_on(const std::vector<Node>& nodes, const Unit& from, const Unit& unit) {
  const Node &conv = nodes[unit.node], &before = nodes[from.node];
  const std::size_t weights =
      conv.shape.channels * before.shape.channels / conv.groups * conv.kernel * conv.kernel;
  return conv.stride == 1 && weights <= before.shape.count() + conv.shape.count();
}

}  // namespace

std::vector<Unit> fold(const nn::Network& network, bool apart) {
  const std::vector<Unit> units = lower(network);
  std::vector<Unit> folded;
  std::vector<std::size_t> place(units.size());  // of the unit that makes the same value
  for (std::size_t u = 0; u < units.size(); ++u) {
    const bool is_conv = units[u].kind == UnitKind::conv;
    if (is_conv && units[units[u].readers[0]].skip != u) continue;  // its point stands for both
    Unit unit = units[u];
    if (is_conv || unit.kind == UnitKind::point) {
      const Unit& conv = is_conv ? unit : units[*unit.input];
      unit.kind = UnitKind::folded;
      unit.relu = !is_conv;
      unit.name = conv.name;
      unit.node = conv.node;
      unit.bn = conv.bn;
      unit.input = conv.input;
    }
    unit.in_region = unit.kept = true;
    unit.readers.clear();
    unit.level = 0;
    place[u] = folded.size();
    for (auto* source : {&unit.input, &unit.skip}) {
      if (!*source) continue;
      *source = place[**source];
      Unit& from = folded[**source];
      from.readers.push_back(folded.size());
      const bool follows =
          source == &unit.input && from.kind == UnitKind::folded && unit.kind == UnitKind::folded;
      const bool new_region =
          apart || unit.kind == UnitKind::head || (follows && !runs_on(network.nodes, from, unit));
      unit.level = std::max(unit.level, from.level + (new_region ? 1 : 0));
    }
    folded.push_back(std::move(unit));
  }
  for (std::size_t u = 0; u < folded.size(); ++u)
    folded[u].in_place = can_replace_skip(folded, u, apart);
  return folded;
}

std::vector<std::vector<std::size_t>> regions(const std::vector<Unit>& units) {
  std::vector<std::vector<std::size_t>> result;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (!units[u].in_region) continue;
    if (result.size() <= units[u].level) result.resize(units[u].level + 1);
    result[units[u].level].push_back(u);
  }
  return result;
}

Band band_of(const nn::WindowLines& window, std::size_t image, const nn::LineRange& out) {
  const nn::Reach in = nn::read_by(window, out);
  return {.image = image,
          .first = out.first,
          .count = out.count,
          .in_first = in.lines.first,
          .in_count = in.lines.count,
          .above = in.above,
          .below = in.below};
}

std::vector<Band> bands_of(const nn::WindowLines& window, std::size_t rows, std::size_t lane,
                           std::size_t lanes) {
  const std::size_t lines = window.out_height;
  const std::size_t begin = rows * lines * lane / lanes, end = rows * lines * (lane + 1) / lanes;
  std::vector<Band> bands;
  for (std::size_t at = begin; at < end;) {
    const std::size_t image = at / lines, first = at % lines;
    const std::size_t count = std::min(lines - first, end - at);
    bands.push_back(band_of(window, image, {first, count}));
    at += count;
  }
  return bands;
}

}  // namespace lockstep::cpu
