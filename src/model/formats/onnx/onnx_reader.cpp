// Of an ONNX file, its weights and notes are read. Weights are the constants of the graph that a
// convolution, batch norm or linear layer reads, and those that nothing reads. Others (how much to
// pad, the mean of pixels) are parts of the computation, which is the ResNet's anyway.
#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/wire.hpp"
#include "lockstep/nn/network.hpp"
#include "model/formats/onnx/onnx_layout.hpp"
#include "model/formats/readers.hpp"
#include "model/formats/stored_tensor.hpp"

namespace lockstep::model {
namespace {

// A ResNet-152 has 777 constants.
constexpr std::size_t most_constants = 1 << 12, most_notes = 1 << 10;
/// The last of the notes that lockstep writes: a file that ends before it is cut off.
constexpr const char* last_note = "width";

struct GraphConstant {
  std::string_view name, message;
  bool of_layer = false;   ///< a convolution, batch norm or linear layer reads it
  bool elsewhere = false;  ///< another node reads it
};

struct GraphNode {
  std::string_view op, output;
  std::string_view message;
};

/// What follows a ResNet's norms is Relu. These have no tensors that would tell.
constexpr std::array<std::string_view, 14> other_activations = {
    "Celu",   "Clip", "Elu",  "Gelu",    "HardSigmoid", "HardSwish", "LeakyRelu",
    "LpPool", "Mish", "Selu", "Sigmoid", "Softplus",    "Softsign",  "Tanh"};

/// The text or message of a field that is there once, or not at all.
void take_once(const WireField& field, std::string_view& text) {
  require(text.empty(), fmt::format("its field {} is there twice", field.number));
  text = field.as_text();
}

class OnnxGraph {
 public:
  /// `own`: lockstep has written it, and its notes say the task.
  OnnxGraph(std::string_view graph, bool own) : own_(own) {
    each_field(graph, [&](const WireField& field) {
      if (field.number == onnx_graph::constant) add_constant(field.as_text());
    });
    each_field(graph, [&](const WireField& field) {
      if (field.number == onnx_graph::node) read_node(field.as_text());
    });
  }

  /// Throws InputError where batch norms are parts of convolutions, and so lost. `producer` wrote
  /// the file.
  void require_norms(std::string_view producer) const {
    require(norms_ > 0 || folded_.empty(),
            fmt::format("its batch norms are parts of convolutions (tensor '{}'), so that its "
                        "tensors are not a ResNet's: export it again {}",
                        printable(folded_),
                        producer == this_producer
                            ? "without --fold"
                            : "with optimize=False (torch.onnx.export with dynamo=False: with "
                              "training=torch.onnx.TrainingMode.PRESERVE and "
                              "do_constant_folding=False)"));
  }

  std::vector<StoredTensor> tensors() const {
    std::vector<StoredTensor> tensors;
    for (const GraphConstant& one : constants_)
      if (one.of_layer || !one.elsewhere)
        tensors.push_back(read_onnx_tensor(one.name, one.message));
    require(!tensors.empty(), "no convolution, batch norm or linear layer of it reads a constant");
    return tensors;
  }

 private:
  void add_constant(std::string_view message) {
    std::string_view name;
    try {
      each_field(message, [&](const WireField& field) {
        if (field.number == onnx_tensor::name) take_once(field, name);
      });
    } catch (const InputError& error) {
      throw InputError(fmt::format("its constant {}, '{}': {}", constants_.size() + 1,
                                   printable(name), error.what()));
    }
    add(name, message);
  }
  void add(std::string_view name, std::string_view message) {
    require(!name.empty(), fmt::format("its constant {} has no name", constants_.size() + 1));
    require(constants_.size() < most_constants,
            fmt::format("it has more than {} constants", most_constants));
    require(places_.emplace(name, constants_.size()).second,
            fmt::format("two of its tensors are named '{}'", printable(name)));
    constants_.push_back({name, message});
  }

  void read_node(std::string_view message) {
    GraphNode node{.op = {}, .output = {}, .message = message};
    each_field(message, [&](const WireField& field) {
      if (field.number == onnx_node::op) take_once(field, node.op);
      if (field.number == onnx_node::output && node.output.empty()) node.output = field.as_text();
    });
    const bool conv = node.op == "Conv", norm = node.op == "BatchNormalization",
               linear = node.op == "Gemm";
    if (linear) of_linear_.insert(node.output);
    require(std::ranges::find(other_activations, node.op) == other_activations.end() ||
                says_labels(node),
            fmt::format("its node '{}' is a {}, which no ResNet of lockstep's has",
                        printable(node.output), node.op));
    if (norm) require_epsilon(node);
    if (conv) require_plain(node);
    if (norm) ++norms_;
    each_field(message, [&](const WireField& field) {
      if (field.number != onnx_node::input) return;
      const auto found = places_.find(field.as_text());
      if (found == places_.end()) return;
      // PyTorch's exporter keeps one of several constants with the same numbers.
      if (node.op == "Identity") return add(node.output, constants_[found->second].message);
      GraphConstant& constant = constants_[found->second];
      if (conv && folded_.empty()) folded_ = constant.name;
      if (linear && !constant.of_layer) require_rows(node, constant.name);
      if (conv && constant.name.ends_with(".conv1.weight")) require_stride(node, constant.name);
      (conv || norm || linear ? constant.of_layer : constant.elsewhere) = true;
    });
  }

  /// The last layer's outputs as the probabilities of labels.
  bool says_labels(const GraphNode& node) const {
    bool of_linear = false;
    each_field(node.message, [&](const WireField& field) {
      if (field.number == onnx_node::input) of_linear = of_linear_.contains(field.as_text());
    });
    return own_ && node.op == "Sigmoid" && of_linear;
  }
  /// Other networks of the same tensors compute something else.
  static void require_epsilon(const GraphNode& node) {
    const float usual = nn::Node().epsilon;
    float epsilon = usual;
    with_attribute(node, "epsilon", onnx_attribute::real,
                   [&](const WireField& field) { epsilon = field.as_real32(); });
    require(epsilon == usual, fmt::format("its batch norm '{}' adds {} to the variance, and not {}",
                                          printable(node.output), epsilon, usual));
  }
  /// The same filters, but with gaps, read other pixels.
  static void require_plain(const GraphNode& node) {
    for (const std::uint64_t gap : wholes(node, "dilations"))
      require(gap == 1, fmt::format("its convolution '{}' has a dilation of {}, and not 1",
                                    printable(node.output), gap));
  }
  /// A bottleneck goes to half the size in its second convolution; other programs' in its first.
  static void require_stride(const GraphNode& node, std::string_view constant) {
    if (wholes(node, "kernel_shape") != std::vector<std::uint64_t>{1, 1}) return;
    for (const std::uint64_t stride : wholes(node, "strides"))
      require(stride == 1,
              fmt::format("the convolution of tensor '{}' has a stride of {}, and not 1: it is an "
                          "older kind of ResNet",
                          printable(constant), stride));
  }
  static std::vector<std::uint64_t> wholes(const GraphNode& node, std::string_view name) {
    std::vector<std::uint64_t> values;
    with_attribute(node, name, onnx_attribute::wholes, [&](const WireField& field) {
      if (field.type == WireType::number) return values.push_back(field.value);
      for (std::string_view left = field.as_text(); !left.empty();)
        values.push_back(take_varint(left));
    });
    return values;
  }
  static void require_rows(const GraphNode& node, std::string_view constant) {
    std::uint64_t turned = 0;
    with_attribute(node, "transB", onnx_attribute::whole,
                   [&](const WireField& field) { turned = field.as_number(); });
    require(turned == 1, fmt::format("tensor '{}' has a column for each output, and not a row",
                                     printable(constant)));
    for (const char* factor : {"alpha", "beta"})
      with_attribute(node, factor, onnx_attribute::real, [&](const WireField& field) {
        require(field.as_real32() == 1,
                fmt::format("the layer of tensor '{}' has {} = {}, and not 1", printable(constant),
                            factor, field.as_real32()));
      });
  }
  template <class Take>
  static void with_attribute(const GraphNode& node, std::string_view wanted, std::uint32_t number,
                             Take&& take) {
    each_field(node.message, [&](const WireField& field) {
      if (field.number != onnx_node::attribute) return;
      std::string_view name;
      each_field(field.as_text(), [&](const WireField& part) {
        if (part.number == onnx_attribute::name) take_once(part, name);
      });
      if (name != wanted) return;
      each_field(field.bytes, [&](const WireField& part) {
        if (part.number == number) take(part);
      });
    });
  }

  const bool own_;
  std::unordered_set<std::string_view> of_linear_;  ///< outputs of linear layers
  std::vector<GraphConstant> constants_;
  std::unordered_map<std::string_view, std::size_t> places_;
  std::string_view folded_;  ///< the first constant of a convolution
  std::size_t norms_ = 0;
};

/// Serializers write fields in the order of their numbers.
bool begins_with_version(std::string_view file) {
  return file.size() >= 2 && file[0] == 0x08 && file[1] >= 1;
}

void add_note(std::string_view message, std::map<std::string, std::string>& notes) {
  std::string_view key, value;
  each_field(message, [&](const WireField& field) {
    if (field.number == onnx_note::key) take_once(field, key);
    if (field.number == onnx_note::value) take_once(field, value);
  });
  require(notes.size() < most_notes, fmt::format("it has more than {} notes", most_notes));
  require(notes.emplace(key, value).second, fmt::format("it has two notes '{}'", printable(key)));
}

}  // namespace

bool looks_like_onnx(std::string_view begin) {
  // The IR version, of one byte, and the name of the producer. Pixels hardly ever look like this.
  constexpr std::size_t before = 4;
  if (begin.size() <= before || !begins_with_version(begin) || begin[2] != 0x12 || begin[3] < 1)
    return false;
  const std::string_view name = begin.substr(before, static_cast<std::size_t>(begin[3]));
  return std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

TensorFile read_onnx(std::shared_ptr<const std::string> content) {
  TensorFile file{.format = "ONNX", .tensors = {}, .notes = {}, .content = content};
  require(begins_with_version(*content),
          "it is no ONNX file: it does not begin with an IR version");
  std::string_view producer, graph;
  bool has_operators = false;
  each_field(*content, [&](const WireField& field) {
    if (field.number == onnx_model::producer) take_once(field, producer);
    if (field.number == onnx_model::graph) take_once(field, graph);
    if (field.number == onnx_model::operator_set) has_operators = true;
    if (field.number == onnx_model::metadata) add_note(field.as_text(), file.notes);
  });
  require(!graph.empty(), "it has no graph");
  // It comes after the graph.
  require(has_operators, "it is cut off: it has no operator set");
  require(producer != this_producer || file.notes.contains(last_note),
          fmt::format("it is cut off: it has no note '{}'", last_note));
  const OnnxGraph read(graph, producer == this_producer);
  read.require_norms(producer);
  file.tensors = read.tensors();
  return file;
}

}  // namespace lockstep::model
