// Linked with the folders below `model` alone: that this program exists shows that model::load
// needs nothing of a training or its configuration. It prints what a checkpoint says about its
// network.
#include "lockstep/model/model.hpp"

#include <cstdio>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"

int main(int count, char** values) {
  if (count != 2) {
    fmt::print(stderr, "give a checkpoint\n");
    return 2;
  }
  try {
    const lockstep::model::Model model = lockstep::model::load(values[1]);
    std::size_t numbers = 0;
    for (const lockstep::model::Weight& weight : model.weights) numbers += weight.values.size();
    fmt::print("{}: {} nodes, {} classes, {} numbers\n", model.about.network.name,
               model.about.network.nodes.size(), model.about.network.classes, numbers);
    return 0;
  } catch (const lockstep::InputError& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  }
}
