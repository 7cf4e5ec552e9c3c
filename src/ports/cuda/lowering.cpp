#include "ports/cuda/lowering.hpp"

#include <fmt/format.h>

#include <map>

#include "lockstep/base/error.hpp"

namespace lockstep::cuda {

namespace {

constexpr std::size_t channel_multiple = 8;  // one 16-byte access in 16-bit precisions
constexpr std::size_t largest_pool = 15;     // a byte holds the place in a window, or 255: none

class Lowering {
 public:
  explicit Lowering(const nn::Network& network)
      : network_(network), readers_(nn::readers(network)) {}

  std::vector<Unit> run() {
    for (std::size_t i = 0; i < network_.nodes.size(); ++i) {
      if (unit_of_node_.contains(i)) continue;  // an earlier unit includes it
      put(i);
    }
    for (std::size_t u = 1; u < units_.size(); ++u) {
      units_[units_[u].input].readers.push_back(u);
      if (units_[u].skip) units_[*units_[u].skip].readers.push_back(u);
    }
    judge();
    return std::move(units_);
  }

 private:
  const nn::Node& node(std::size_t i) const { return network_.nodes[i]; }

  [[noreturn]] void refuse(std::size_t i, const char* why) const {
    throw Error(fmt::format("{}: the CUDA backend cannot run this node: {}", node(i).name, why));
  }

  void put(std::size_t i) {
    Unit unit;
    unit.name = node(i).name;
    unit.node = unit.value = i;
    switch (node(i).op) {
      case nn::Op::input:
        break;
      case nn::Op::conv:
        unit.kind = UnitKind::conv;
        break;
      case nn::Op::batch_norm:
        unit.kind = UnitKind::norm;
        break;
      case nn::Op::max_pool:
        unit.kind = UnitKind::max_pool;
        break;
      case nn::Op::avg_pool:
        unit.kind = UnitKind::mean_pool;
        break;
      case nn::Op::subsample_pad:
        unit.kind = UnitKind::subsample;
        break;
      case nn::Op::global_avg_pool:
        return put_head(i);
      case nn::Op::receive:
        unit.kind = UnitKind::receive;
        break;
      case nn::Op::send:
        unit.kind = UnitKind::send;
        break;
      case nn::Op::add:
      case nn::Op::relu:
      case nn::Op::linear:
      case nn::Op::loss:
        refuse(i, "it must follow a batch norm or pooling that nothing else reads");
    }
    if (!node(i).inputs.empty()) unit.input = unit_of_node_.at(node(i).inputs[0]);
    if (unit.kind == UnitKind::norm) take_in_what_follows(unit);
    finish(std::move(unit));
  }

  /// Adds the sum after a batch norm, if its other summand already exists, and the ReLU after that.
  void take_in_what_follows(Unit& unit) {
    std::size_t next = only_reader(unit.value);
    if (next != none && node(next).op == nn::Op::add) {
      const auto& summands = node(next).inputs;
      const std::size_t other = summands[0] == unit.value ? summands[1] : summands[0];
      // A shortcut without weights comes later in the network, but can be made now.
      if (!unit_of_node_.contains(other) && node(other).op == nn::Op::subsample_pad) put(other);
      const auto made = unit_of_node_.find(other);
      if (made != unit_of_node_.end() && units_[made->second].value == other) {
        unit.skip = made->second;
        take(unit, next);
        next = only_reader(unit.value);
      }
    }
    if (next != none && node(next).op == nn::Op::relu) {
      unit.relu = true;
      take(unit, next);
    }
  }

  void put_head(std::size_t pool) {
    Unit unit;
    unit.kind = UnitKind::head;
    unit.input = unit_of_node_.at(node(pool).inputs[0]);
    unit.node = unit.value = pool;
    for (const nn::Op op : {nn::Op::linear, nn::Op::loss}) {
      const std::size_t next = only_reader(unit.value);
      if (next == none || node(next).op != op)
        refuse(pool, "pooling, linear layer and loss must follow each other");
      if (op == nn::Op::linear) unit.node = next;
      take(unit, next);
    }
    if (!node(unit.node).bias) refuse(unit.node, "a linear layer must have a bias");
    unit_of_node_[pool] = units_.size();
    unit.name = node(unit.node).name;
    finish(std::move(unit));
  }

  void take(Unit& unit, std::size_t i) {
    unit.value = i;
    unit_of_node_[i] = units_.size();
  }

  void finish(Unit unit) {
    unit_of_node_[unit.node] = units_.size();
    units_.push_back(std::move(unit));
  }

  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  std::size_t only_reader(std::size_t i) const {
    return readers_[i].size() == 1 ? readers_[i][0] : none;
  }

  /// Checks what the kernels and the tape rely on.
  void judge() const {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const Unit& unit = units_[u];
      const std::size_t channels = node(unit.value).shape.channels;
      const std::size_t readers = unit.readers.size();
      if (unit.kind == UnitKind::head) continue;
      if (unit.kind == UnitKind::send) {
        const UnitKind sent = units_[unit.input].kind;
        if (sent != UnitKind::norm && sent != UnitKind::max_pool)
          refuse(unit.node, "a stage must end after a batch norm, with its ReLU, or after pooling");
        if (node(unit.node).gradients > 2)
          refuse(unit.node, "one or two others must read what it sends");
        continue;
      }
      if (readers == 0 || readers > 2) refuse(unit.node, "one or two others must read it");
      if (unit.kind == UnitKind::image) {
        for (const std::size_t reader : unit.readers)
          if (units_[reader].kind != UnitKind::conv) refuse(unit.node, "only convolutions read it");
        continue;
      }
      if (channels % channel_multiple != 0) refuse(unit.node, "channels must be a multiple of 8");
      if (unit.kind == UnitKind::conv &&
          (readers != 1 || units_[unit.readers[0]].kind != UnitKind::norm ||
           units_[unit.readers[0]].input != u))
        refuse(unit.node, "a batch norm must follow it");
      if (unit.kind == UnitKind::norm && units_[unit.input].kind != UnitKind::conv)
        refuse(unit.node, "it must follow a convolution, in the same stage");
      const std::size_t added = channels - node(units_[unit.input].value).shape.channels;
      if (unit.kind == UnitKind::subsample && added % (2 * channel_multiple) != 0)
        refuse(unit.node, "the new channels must be a multiple of 16");
      if (unit.kind == UnitKind::max_pool && node(unit.node).kernel > largest_pool)
        refuse(unit.node, "its windows must have at most 15 x 15 pixels");
    }
  }

  const nn::Network& network_;
  std::vector<std::vector<std::size_t>> readers_;  // of nodes
  std::map<std::size_t, std::size_t> unit_of_node_;
  std::vector<Unit> units_;
};

}  // namespace

std::vector<Unit> lower(const nn::Network& network) { return Lowering(network).run(); }

}  // namespace lockstep::cuda
