#include "model/formats/readers.hpp"

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "lockstep/backend/answers.hpp"
#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/base/error.hpp"
#include "model/formats/onnx/onnx_layout.hpp"
#include "model/formats/stored_tensor.hpp"

namespace lockstep::model {
namespace {

using nn::Node;
using nn::Op;
using nn::Shape;
using Values = std::vector<float>;
using Sizes = std::vector<std::size_t>;

constexpr std::uint64_t ir_version = 7, operator_set = 13;

OnnxType type_of(data::Element element) {
  switch (element) {
    case data::Element::u8:
      return OnnxType::uint8;
    case data::Element::u16:
      return OnnxType::uint16;
    case data::Element::i16:
      return OnnxType::int16;
    case data::Element::f16:
      return OnnxType::float16;
    case data::Element::f32:
      break;
  }
  return OnnxType::real32;
}

/// Writes the nodes of a network one after the other.
class OnnxNetwork {
 public:
  OnnxNetwork(const Model& model, const GraphOptions& options)
      : network_(model.about.network),
        input_(model.about.input),
        options_(options),
        readers_(nn::readers(network_)),
        graph_(network_.name),
        values_(network_.nodes.size()) {
    for (const Weight& weight : model.weights) weights_[weight.tensor.name] = &weight;
    for (std::size_t i = 0; i < network_.nodes.size(); ++i) values_[i] = write(i);
  }
  const WireMessage& graph() const { return graph_.graph(); }

 private:
  const Node& node(std::size_t i) const { return network_.nodes[i]; }
  const Weight& weight(const Node& of, const char* what) const {
    return *weights_.at(of.name + "." + what);
  }
  /// Writes the tensor, and returns its name.
  std::string constant(const Node& of, const char* what) {
    const Weight& found = weight(of, what);
    return constant(of, what, found.tensor.shape, found.values);
  }
  std::string constant(const Node& of, const char* what, const Sizes& shape, const Values& values) {
    const std::string name = fresh(of.name + "." + what);
    graph_.constant(name, shape, values);
    return name;
  }
  std::string constant(const Node& of, const char* what, const std::vector<std::int64_t>& values) {
    const std::string name = fresh(of.name + "." + what);
    graph_.constant(name, values);
    return name;
  }
  /// Writes an ONNX node whose output is of this shape, without the number of images.
  std::string put(const char* op, const std::string& output, const Sizes& shape,
                  const std::vector<std::string>& inputs, const Attributes& attributes = {}) {
    graph_.node(op, fresh(output), inputs, attributes);
    graph_.inner(output, shape);
    return output;
  }
  std::string put(const char* op, const Node& it, const std::vector<std::string>& inputs,
                  const Attributes& attributes = {}) {
    return put(op, it.name, planes(it.shape), inputs, attributes);
  }
  static Sizes planes(const Shape& shape) { return {shape.channels, shape.height, shape.width}; }
  std::string fresh(const std::string& name) {
    require(names_.insert(name).second,
            fmt::format("{}: two values of an ONNX file would be named {}", network_.name, name));
    return name;
  }

  /// Returns the name of the value that the node makes.
  std::string write(std::size_t i) {
    const Node& it = node(i);
    const std::string x = it.inputs.empty() ? "" : values_[it.inputs[0]];
    switch (it.op) {
      case Op::input:
        return write_input(it);
      case Op::conv:
        return write_conv(i, x);
      case Op::batch_norm:
        if (folded_norm(it.inputs[0]) == i) return x;
        return put("BatchNormalization", it,
                   {x, constant(it, "weight"), constant(it, "bias"), constant(it, "running_mean"),
                    constant(it, "running_var")},
                   Attributes().real("epsilon", it.epsilon));
      case Op::relu:
        return put("Relu", it, {x});
      case Op::add:
        return put("Add", it, {x, values_[it.inputs[1]]});
      case Op::max_pool:
        return put("MaxPool", it, {x}, windows(it));
      case Op::avg_pool:
        return put("AveragePool", it, {x}, cells(it));
      case Op::subsample_pad:
        return write_subsample_pad(it, x);
      case Op::global_avg_pool:
        return put("GlobalAveragePool", it, {x});
      case Op::linear:
        return write_linear(i, x);
      case Op::loss:
        return write_outputs(it, x);
      case Op::receive:
      case Op::send:
        break;
    }
    throw InputError(it.name + ": a stage of a network has no form in ONNX");
  }

  static Attributes windows(const Node& of) {
    Attributes attributes;
    attributes.wholes("kernel_shape", Sizes(2, of.kernel))
        .wholes("strides", Sizes(2, of.stride))
        .wholes("pads", Sizes(4, of.padding));
    if (of.groups > 1) attributes.whole("group", of.groups);
    return attributes;
  }

  /// Padding only fills the last cells; ONNX leaves it out of the means.
  Attributes cells(const Node& of) const {
    const Shape& in = node(of.inputs[0]).shape;
    const auto missing = [&](std::size_t cells, std::size_t size) {
      return cells * of.stride - size;
    };
    return Attributes()
        .wholes("kernel_shape", Sizes(2, of.kernel))
        .wholes("strides", Sizes(2, of.stride))
        .wholes("pads", Sizes{0, 0, missing(of.shape.height, in.height),
                              missing(of.shape.width, in.width)});
  }

  std::string write_input(const Node& it) {
    const auto [channels, height, width] = it.shape;
    fresh("images");
    if (options_.float_input) {
      graph_.input("images", OnnxType::real32, Sizes{channels, height, width});
      return "images";
    }
    require(!input_.mean.empty() && !input_.stddev.empty(),
            network_.name +
                ": an ONNX file for pixels normalises them, but their mean and deviation are not "
                "known: export it for normalised input, or with those of a checkpoint");
    graph_.input("images", type_of(input_.element), Sizes{height, width, channels});
    const std::string real = input_.element == data::Element::f32
                                 ? "images"
                                 : put("Cast", it.name + ".float", {height, width, channels},
                                       {"images"}, cast_to(OnnxType::real32));
    const std::string x = put("Transpose", it.name + ".nchw", planes(it.shape), {real},
                              Attributes().wholes("perm", Sizes{0, 3, 1, 2}));
    const std::string shaped = write_curve(it, write_limits(it, x));
    if (!input_.no_data) return write_entry(it, it.name, shaped);
    return write_missing(it, x, write_entry(it, it.name + ".entered", shaped));
  }

  /// Clip knows one pair of limits for all channels.
  std::string write_limits(const Node& it, const std::string& x) {
    const data::Shaping& shaping = input_.shaping;
    if (shaping.low.empty()) return x;
    const Sizes each_channel = {1, shaping.low.size(), 1, 1};
    const std::string above = put("Max", it.name + ".above", planes(it.shape),
                                  {x, constant(it, "low", each_channel, shaping.low)});
    return put("Min", it.name + ".limited", planes(it.shape),
               {above, constant(it, "high", each_channel, shaping.high)});
  }

  /// log1p in double: a float's 1 + x would lose small values.
  std::string write_curve(const Node& it, const std::string& x) {
    const std::string curved = it.name + ".curved";
    if (input_.shaping.curve == data::Curve::linear) return x;
    if (input_.shaping.curve == data::Curve::asinh)
      return put("Asinh", curved, planes(it.shape), {x});
    const std::string one = fresh(it.name + ".one");
    graph_.constant(one, std::vector<double>{1});
    std::string made = x;
    const auto step = [&](const char* op, const std::string& what,
                          const std::vector<std::string>& more, const Attributes& attributes = {}) {
      std::vector<std::string> inputs{made};
      inputs.insert(inputs.end(), more.begin(), more.end());
      made = fresh(it.name + what);
      graph_.node(op, made, inputs, attributes);
    };
    step("Cast", ".wide", {}, cast_to(OnnxType::real64));
    step("Add", ".above_one", {one});
    step("Log", ".log", {});
    return put("Cast", curved, planes(it.shape), {made}, cast_to(OnnxType::real32));
  }
  static Attributes cast_to(OnnxType type) {
    return Attributes().whole("to", static_cast<std::size_t>(type));
  }

  /// Normalises with the arithmetic of a backend.
  std::string write_entry(const Node& it, const std::string& output, const std::string& x) {
    Values first, second;
    const bool bytes = input_.enter_as_bytes();
    for (std::size_t c = 0; c < it.shape.channels; ++c) {
      const float mean = input_.mean.at(c), deviation = input_.stddev.at(c);
      const auto of_byte = backend::arithmetic::pixel_scale(mean, deviation);
      const auto of_other = backend::arithmetic::element_entry(mean, deviation);
      first.push_back(bytes ? of_byte.scale : of_other.mean);
      second.push_back(bytes ? of_byte.shift : of_other.inverse);
    }
    const auto step = [&](const char* op, const std::string& made, const std::string& from,
                          const char* what, const Values& values) {
      const Sizes each_channel = {1, values.size(), 1, 1};
      return put(op, made, planes(it.shape), {from, constant(it, what, each_channel, values)});
    };
    if (bytes)
      return step("Add", output, step("Mul", it.name + ".scaled", x, "scale", first), "shift",
                  second);
    return step("Mul", output, step("Sub", it.name + ".centred", x, "mean", first), "inverse",
                second);
  }

  /// 0 where `x` is no data.
  std::string write_missing(const Node& it, const std::string& x, const std::string& entered) {
    std::vector<std::string> tests;
    const auto test = [&](const char* op, const std::vector<std::string>& inputs) {
      tests.push_back(fresh(it.name + "." + op));
      graph_.node(op, tests.back(), inputs);
    };
    const float no_data = *input_.no_data;
    if (!std::isnan(no_data)) test("Equal", {x, constant(it, "no_data", {1}, {no_data})});
    if (data::is_float(input_.element)) test("IsNaN", {x});
    if (tests.empty()) return entered;
    if (tests.size() > 1) test("Or", {tests[0], tests[1]});
    return put("Where", it, {tests.back(), constant(it, "zero", {1}, Values{0}), entered});
  }

  /// The batch norm that becomes part of this convolution.
  std::optional<std::size_t> folded_norm(std::size_t conv) const {
    if (!options_.fold || node(conv).op != Op::conv || readers_[conv].size() != 1) return {};
    const std::size_t reader = readers_[conv][0];
    return node(reader).op == Op::batch_norm ? std::optional(reader) : std::nullopt;
  }

  std::string write_conv(std::size_t i, const std::string& x) {
    const Node& it = node(i);
    const auto norm = folded_norm(i);
    if (!norm) return put("Conv", it, {x, constant(it, "weight")}, windows(it));
    const Node& by = node(*norm);
    const Values &scale = weight(by, "weight").values, &shift = weight(by, "bias").values,
                 &mean = weight(by, "running_mean").values, &var = weight(by, "running_var").values;
    const Weight& kernels = weight(it, "weight");
    Values scaled = kernels.values, bias(scale.size());
    const std::size_t each = scaled.size() / scale.size();
    for (std::size_t c = 0; c < scale.size(); ++c) {
      const double factor = scale[c] / std::sqrt(double{var[c]} + double{by.epsilon});
      for (std::size_t k = c * each; k < (c + 1) * each; ++k)
        scaled[k] = static_cast<float>(scaled[k] * factor);
      bias[c] = static_cast<float>(shift[c] - mean[c] * factor);
    }
    return put("Conv", it,
               {x, constant(it, "weight", kernels.tensor.shape, scaled),
                constant(it, "bias", {scale.size()}, bias)},
               windows(it));
  }

  /// Every stride-th pixel, and zeros for the new channels, half on each side.
  std::string write_subsample_pad(const Node& it, const std::string& x) {
    const Shape& in = node(it.inputs[0]).shape;
    const auto whole = [](std::size_t value) { return static_cast<std::int64_t>(value); };
    const std::string kept = put(
        "Slice", it.name + ".kept", {in.channels, it.shape.height, it.shape.width},
        {x, constant(it, "starts", {0, 0}),
         constant(it, "ends", {whole(in.height), whole(in.width)}), constant(it, "axes", {2, 3}),
         constant(it, "steps", {whole(it.stride), whole(it.stride)})});
    const std::size_t more = it.shape.channels - in.channels;
    return put(
        "Pad", it,
        {kept, constant(it, "pads", {0, whole(more / 2), 0, 0, 0, whole(more - more / 2), 0, 0})});
  }

  std::string write_linear(std::size_t i, const std::string& x) {
    const Node& it = node(i);
    for (const std::size_t reader : readers_[i])
      require(node(reader).op == Op::loss,
              fmt::format("{}: it reads a linear layer, which has no form in ONNX here",
                          node(reader).name));
    const std::size_t features = node(it.inputs[0]).shape.count();
    std::vector<std::string> inputs = {put("Flatten", it.name + ".flat", Sizes{features}, {x}),
                                       constant(it, "weight")};
    if (it.bias) inputs.push_back(constant(it, "bias"));
    graph_.node("Gemm", fresh("logits"), inputs, Attributes().whole("transB", 1));
    return "logits";
  }

  std::string write_outputs(const Node& it, const std::string& x) {
    if (x != "logits") graph_.node("Flatten", fresh("logits"), {x});
    const std::string said = fresh(backend::name_of_answers(input_.task));
    if (input_.task == data::Task::values)
      write_units(it, said);
    else if (input_.task == data::Task::labels)
      graph_.node("Sigmoid", said, {"logits"});
    else
      graph_.node("Softmax", said, {"logits"}, Attributes().whole("axis", 1));
    for (const std::string& name : {std::string("logits"), said})
      graph_.output(name, Sizes{it.shape.channels});
    return said;
  }

  /// In double, as backend::answers_of(): of a mean that is large next to its deviation, a float's
  /// product and sum would lose more.
  void write_units(const Node& it, const std::string& said) {
    const auto step = [&](const char* op, const std::string& x, const char* what,
                          const std::vector<float>& units) {
      const std::string constant = fresh(it.name + "." + what), made = fresh(it.name + "." + op);
      graph_.constant(constant, std::vector<double>(units.begin(), units.end()));
      graph_.node(op, made, {x, constant});
      return made;
    };
    const std::string wide = fresh(it.name + ".wide");
    graph_.node("Cast", wide, {"logits"}, cast_to(OnnxType::real64));
    const std::string scaled = step("Mul", wide, "target_stddev", input_.target_stddev);
    graph_.node("Cast", said, {step("Add", scaled, "target_mean", input_.target_mean)},
                cast_to(OnnxType::real32));
  }

  const nn::Network& network_;
  const data::DataSetInfo& input_;
  const GraphOptions options_;
  const std::vector<std::vector<std::size_t>> readers_;
  std::map<std::string, const Weight*> weights_;
  GraphWriter graph_;
  std::set<std::string> names_;      ///< of values
  std::vector<std::string> values_;  ///< of nodes
};

}  // namespace

std::string onnx_bytes(const Model& model, const GraphOptions& options) {
  const OnnxNetwork network(model, options);
  WireMessage file;
  file.number(onnx_model::ir_version, ir_version).text(onnx_model::producer, this_producer);
  file.message(onnx_model::graph, network.graph());
  file.message(onnx_model::operator_set, WireMessage()
                                             .text(onnx_operator_set::domain, "")
                                             .number(onnx_operator_set::version, operator_set));
  std::map<std::string, std::string> notes = notes_of(model);
  notes.erase("format");
  notes["steps"] = std::to_string(model.steps);
  for (const auto& [key, value] : notes)
    file.message(onnx_model::metadata,
                 WireMessage().text(onnx_note::key, key).text(onnx_note::value, value));
  return file.bytes();
}

}  // namespace lockstep::model
