#pragma once

#include <string>
#include <string_view>

#include <catch2/catch.hpp>

#include "lockstep/nn/network.hpp"

namespace lockstep::test {

/// A network of one convolution, as the text of a checkpoint: 4 x 5 pixels to 2 classes.
inline const std::string small_network_text =
    R"({"name":"small","input":{"height":4,"width":5,"channels":3},"classes":2,"nodes":[)"
    R"({"name":"input","op":"input"},)"
    R"({"name":"conv1","op":"conv","inputs":["input"],"channels":16,"kernel":3,"stride":2,"padding":1},)"
    R"({"name":"bn1","op":"batch_norm","inputs":["conv1"],"epsilon":0.5,"momentum":0.125,"zero_init":false},)"
    R"({"name":"relu","op":"relu","inputs":["bn1"]},)"
    R"({"name":"avgpool","op":"global_avg_pool","inputs":["relu"]},)"
    R"({"name":"fc","op":"linear","inputs":["avgpool"],"channels":2,"bias":true},)"
    R"({"name":"loss","op":"loss","inputs":["fc"]}]})";

/// `text` with its only `from` replaced.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

inline bool same(const nn::Node& a, const nn::Node& b) {
  return a.name == b.name && a.op == b.op && a.inputs == b.inputs && a.shape == b.shape &&
         a.kernel == b.kernel && a.stride == b.stride && a.padding == b.padding &&
         a.bias == b.bias && a.epsilon == b.epsilon && a.momentum == b.momentum &&
         a.zero_init == b.zero_init;
}

inline bool same(const nn::Network& a, const nn::Network& b) {
  if (a.name != b.name || a.input != b.input || a.classes != b.classes ||
      a.nodes.size() != b.nodes.size())
    return false;
  for (std::size_t i = 0; i < a.nodes.size(); ++i)
    if (!same(a.nodes[i], b.nodes[i])) return false;
  return true;
}

}  // namespace lockstep::test
