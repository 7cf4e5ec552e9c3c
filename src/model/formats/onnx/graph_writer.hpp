#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/wire.hpp"
#include "model/formats/onnx/onnx_layout.hpp"

namespace lockstep::model {

/// The attributes of a node.
class Attributes {
 public:
  Attributes& whole(const char* name, std::size_t value);
  Attributes& wholes(const char* name, std::span<const std::size_t> values);
  Attributes& real(const char* name, float value);

 private:
  friend class GraphWriter;
  std::vector<WireMessage> all_;
};

/// Collects a graph: a list of nodes in an order in which they can run, and the constants that they
/// read. Each value has its own name.
class GraphWriter {
 public:
  explicit GraphWriter(const std::string& name) { graph_.text(onnx_graph::name, name); }

  /// A node with one output, of the same name.
  void node(const char* op, const std::string& output, const std::vector<std::string>& inputs,
            const Attributes& attributes = {});
  void constant(const std::string& name, std::span<const std::size_t> shape,
                std::span<const float> values);
  void constant(const std::string& name, std::span<const std::int64_t> values);
  /// Of a node's output, dimensions after the first, which is free. Readers could infer them;
  /// viewers only show what is written.
  void inner(const std::string& name, std::span<const std::size_t> shape);
  /// Dimensions as above.
  void input(const std::string& name, OnnxType type, std::span<const std::size_t> shape);
  void output(const std::string& name, std::span<const std::size_t> shape);

  const WireMessage& graph() const { return graph_; }

 private:
  WireMessage graph_;
};

}  // namespace lockstep::model
