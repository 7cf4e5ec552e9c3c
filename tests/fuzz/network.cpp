// Fuzzes the text of a network in a checkpoint. A text that is read is a network, and comes back.
#include "lockstep/model/network_text.hpp"

#include "lockstep/nn/arena.hpp"
#include "lockstep/nn/resnet.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {

std::vector<std::string> seeds() {
  const std::string small =
      R"({"name":"small","input":{"height":4,"width":5,"channels":3},"classes":2,"nodes":[)"
      R"({"name":"input","op":"input"},)"
      R"({"name":"c","op":"conv","inputs":["input"],"channels":16,"kernel":3,"stride":2,"padding":1},)"
      R"({"name":"b","op":"batch_norm","inputs":["c"],"epsilon":1e-5,"momentum":0.1,"zero_init":false},)"
      R"({"name":"r","op":"relu","inputs":["b"]},)"
      R"({"name":"m","op":"max_pool","inputs":["r"],"kernel":2,"stride":1,"padding":0},)"
      R"({"name":"p","op":"avg_pool","inputs":["m"],"stride":2},)"
      R"({"name":"s","op":"subsample_pad","inputs":["p"],"channels":32,"stride":2},)"
      R"({"name":"a","op":"add","inputs":["s","s"]},)"
      R"({"name":"g","op":"global_avg_pool","inputs":["a"]},)"
      R"({"name":"f","op":"linear","inputs":["g"],"channels":2,"bias":true},)"
      R"({"name":"l","op":"loss","inputs":["f"]}]})";
  return {small, model::network_text(nn::resnet({.model = "resnet20"})), "{}",
          std::string(1000, '[')};
}

void one(std::span<const std::uint8_t> bytes) {
  const nn::Network network = model::parse_network(text_of(bytes));
  nn::validate(network);
  const std::string text = model::network_text(network);
  require_law(model::network_text(model::parse_network(text)) == text, "a network comes back");
  const auto layout =
      nn::arena_layout(network, [](const nn::Tensor& tensor) { return tensor.count(); });
  require_law(layout.slices.size() == nn::tensors(network).size(), "a tensor has its slice");
}

}  // namespace lockstep::fuzz
