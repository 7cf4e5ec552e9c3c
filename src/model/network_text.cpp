#include "lockstep/model/network_text.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::model {
namespace {

using Json = nlohmann::ordered_json;
using Parsed = nlohmann::json;  // finds a field fast, however many a text has
using nn::Node;
using nn::Op;

// What a text may claim before its tensors have been seen. The largest ResNet has 520 nodes and 80
// kB.
constexpr std::size_t longest_network = std::size_t{1} << 22, most_nodes = 1 << 14,
                      longest_name = 200, most_classes = std::size_t{1} << 20;
constexpr std::uint64_t widest_input = 1 << 16, widest_window = 256;
constexpr std::size_t most_values = std::size_t{1} << 28;  // of one node, for one image
constexpr int deepest = 4;                                 // network, nodes, node, inputs

/// A convolution's, where there is more than one.
constexpr const char* groups_field = "groups";

/// Fields that an op has in addition to name, op and inputs.
std::vector<std::string_view> fields_of(Op op) {
  switch (op) {
    case Op::conv:
      return {"channels", "kernel", "stride", "padding"};
    case Op::max_pool:
      return {"kernel", "stride", "padding"};
    case Op::avg_pool:
      return {"stride"};
    case Op::subsample_pad:
      return {"channels", "stride"};
    case Op::batch_norm:
      return {"epsilon", "momentum", "zero_init"};
    case Op::linear:
      return {"channels", "bias"};
    case Op::input:
    case Op::relu:
    case Op::add:
    case Op::global_avg_pool:
    case Op::loss:
      return {};
    case Op::receive:
    case Op::send:
      break;
  }
  throw Error("a stage of a network has no form in files");
}

Json node_as_json(const nn::Network& network, const Node& node) {
  Json json = {{"name", node.name}, {"op", choice_name(node.op)}};
  if (!node.inputs.empty()) {
    Json& inputs = json["inputs"] = Json::array();
    for (const std::size_t input : node.inputs) inputs.push_back(network.nodes[input].name);
  }
  const std::map<std::string_view, Json> values = {
      {"channels", node.shape.channels}, {"kernel", node.kernel},   {"stride", node.stride},
      {"padding", node.padding},         {"epsilon", node.epsilon}, {"momentum", node.momentum},
      {"zero_init", node.zero_init},     {"bias", node.bias}};
  for (const std::string_view field : fields_of(node.op))
    json[std::string(field)] = values.at(field);
  if (node.groups > 1) json[groups_field] = node.groups;  // so that older programs read all others
  return json;
}

/// One object of the text, whose fields are taken one by one.
class Fields {
 public:
  Fields(const Parsed& object, std::string where) : object_(object), where_(std::move(where)) {
    require(object.is_object(), where_ + " is not an object");
  }

  [[noreturn]] void refuse(std::string_view field, std::string_view what) const {
    throw InputError(fmt::format("{}: '{}' {}", where_, field, what));
  }
  void allow_only(const std::vector<std::string_view>& known) const {
    for (const auto& [name, value] : object_.items())
      if (std::find(known.begin(), known.end(), name) == known.end())
        refuse(printable(name), "is not a field that this lockstep knows");
  }
  bool has(std::string_view field) const { return object_.contains(std::string(field)); }
  const Parsed& at(std::string_view field) const {
    const auto found = object_.find(std::string(field));
    if (found == object_.end()) refuse(field, "is missing");
    return *found;
  }
  const Parsed& list(std::string_view field, std::size_t most) const {
    const Parsed& value = at(field);
    if (!value.is_array() || value.size() > most)
      refuse(field, fmt::format("is not a list of at most {}", most));
    return value;
  }
  std::size_t count(std::string_view field, std::uint64_t least, std::uint64_t most) const {
    const Parsed& value = at(field);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least ||
        value.get<std::uint64_t>() > most)
      refuse(field, fmt::format("is not a whole number from {} to {}", least, most));
    return value.get<std::size_t>();
  }
  /// From 0 to 1.
  float share(std::string_view field) const {
    const Parsed& value = at(field);
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0 && number <= 1)) refuse(field, "is not a number from 0 to 1");
    return static_cast<float>(number);
  }
  bool flag(std::string_view field) const {
    const Parsed& value = at(field);
    if (!value.is_boolean()) refuse(field, "is not true or false");
    return value.get<bool>();
  }
  std::string name(std::string_view field) const { return name_in(at(field), field); }
  /// Letters, digits, '.', '_' and '-': a name is part of a path in the file, and of messages.
  std::string name_in(const Parsed& value, std::string_view field) const {
    const auto plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '.' || c == '_' || c == '-';
    };
    if (!value.is_string()) refuse(field, "is not a text");
    const auto& text = value.get_ref<const std::string&>();
    if (text.empty() || text.size() > longest_name || !std::all_of(text.begin(), text.end(), plain))
      refuse(field, fmt::format("is not a name of 1 to {} letters, digits, '.', '_' or '-'",
                                longest_name));
    return text;
  }

 private:
  static std::string printable(const std::string& name) {
    std::string text = name.substr(0, 40);
    for (char& c : text)
      if (c < ' ' || c > '~') c = '?';
    return text;
  }
  const Parsed& object_;
  std::string where_;
};

/// Reads the nodes in order. Their inputs must have been read.
class NodeReader {
 public:
  explicit NodeReader(nn::Network& network) : network_(network) {}

  void add(const Parsed& json) {
    const std::size_t index = network_.nodes.size();
    Node node;
    node.name = Fields(json, fmt::format("node {}", index)).name("name");
    const std::string where = fmt::format("node {} ({})", index, node.name);
    const Fields fields(json, where);
    node.op = parse_choice<Op>(fields.name("op"), where + ": op");
    std::vector<std::string_view> known = fields_of(node.op);
    for (const std::string_view field : known) take(node, fields, field);
    if (node.op == Op::conv && fields.has(groups_field)) {
      node.groups = fields.count(groups_field, 1, most_classes);
      known.push_back(groups_field);
    }
    known.insert(known.end(), {"name", "op", "inputs"});
    fields.allow_only(known);
    take_inputs(node, fields);
    node.shape = nn::output_shape(network_, node);
    require(node.shape.channels > 0 && node.shape.height > 0 && node.shape.width > 0 &&
                node.shape.channels <= most_values / node.shape.height / node.shape.width,
            where + " has more values than this lockstep takes");
    require(index_of_.emplace(node.name, index).second,
            fmt::format("node {}: a second node is named '{}'", index, node.name));
    network_.nodes.push_back(std::move(node));
  }

 private:
  static void take(Node& node, const Fields& fields, std::string_view field) {
    if (field == "channels") node.shape.channels = fields.count(field, 1, most_classes);
    if (field == "kernel") node.kernel = fields.count(field, 1, widest_window);
    if (field == "stride") node.stride = fields.count(field, 1, widest_input);
    if (node.op == Op::avg_pool) node.kernel = node.stride;
    if (field == "padding") node.padding = fields.count(field, 0, node.kernel - 1);
    if (field == "epsilon") node.epsilon = fields.share(field);
    if (field == "momentum") node.momentum = fields.share(field);
    if (field == "zero_init") node.zero_init = fields.flag(field);
    if (field == "bias") node.bias = fields.flag(field);
  }
  void take_inputs(Node& node, const Fields& fields) const {
    const std::size_t arity = nn::arity(node.op);
    if (arity == 0) return fields.allow_only({"name", "op"});
    for (const Parsed& input : fields.list("inputs", arity)) {
      const auto found = index_of_.find(fields.name_in(input, "inputs"));
      if (found == index_of_.end()) fields.refuse("inputs", "has a name of no earlier node");
      node.inputs.push_back(found->second);
    }
    if (node.inputs.size() != arity)
      fields.refuse("inputs", "does not have " + counted(arity, "name"));
  }

  nn::Network& network_;
  std::map<std::string, std::size_t> index_of_;
};

Parsed parse_json(std::string_view text) {
  require(text.size() <= longest_network,
          fmt::format("it has {} bytes; at most {} are read", text.size(), longest_network));
  const auto within = [](int depth, Parsed::parse_event_t, Parsed&) {
    require(depth <= deepest, fmt::format("it is nested more than {} deep", deepest));
    return true;
  };
  try {
    return Parsed::parse(text, within);
  } catch (const nlohmann::json::exception& error) {
    throw InputError("it is not JSON");
  }
}

}  // namespace

std::string network_text(const nn::Network& network) {
  Json nodes = Json::array();
  for (const Node& node : network.nodes) nodes.push_back(node_as_json(network, node));
  const nn::Shape& input = network.input;
  return json_text(Json{
      {"name", network.name},
      {"input", {{"height", input.height}, {"width", input.width}, {"channels", input.channels}}},
      {"classes", network.classes},
      {"nodes", std::move(nodes)}});
}

nn::Network parse_network(std::string_view text) {
  const Parsed json = parse_json(text);
  const Fields fields(json, "the network");
  fields.allow_only({"name", "input", "classes", "nodes"});
  const Fields input(fields.at("input"), "the network's input");
  input.allow_only({"height", "width", "channels"});
  nn::Network network;
  network.name = fields.name("name");
  network.input = {.channels = input.count("channels", 1, widest_input),
                   .height = input.count("height", 1, widest_input),
                   .width = input.count("width", 1, widest_input)};
  network.classes = fields.count("classes", 1, most_classes);
  NodeReader reader(network);
  for (const Parsed& node : fields.list("nodes", most_nodes)) reader.add(node);
  nn::validate(network);
  return network;
}

}  // namespace lockstep::model
